# SPDX-License-Identifier: Apache-2.0
"""What is sent: models' gradients, other flows, and how late workers are."""

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane_sim import background, models, stragglers
from gradlane_sim.errors import SpecificationError
from gradlane_sim.specification import SECOND

RATE = 10_000_000_000
# Of torchvision (resnet50, vgg16) and transformers (BertModel of bert-large-uncased, GPT2LMHeadModel of gpt2-xl).
PARAMETERS = {"resnet50": 25_557_032, "vgg16": 138_357_544, "bert-large": 335_141_888, "gpt2-xl": 1_557_611_200}
# Multiply-adds of a forward pass of an image of 224 x 224, as torchvision's pages have them.
GIGA_MACS = {"resnet50": 4.09, "vgg16": 15.47}


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_the_published_numbers_of_parameters(name: str) -> None:
    assert models.MODELS[name].parameters == PARAMETERS[name]


@pytest.mark.parametrize("name", GIGA_MACS)
def test_models_compute_as_much_as_published(name: str) -> None:
    flops = sum(layer.flops for layer in models.MODELS[name].layers)
    assert flops / 2e9 == pytest.approx(GIGA_MACS[name], rel=0.01)


@given(st.sampled_from(sorted(PARAMETERS)), st.integers(4, 1 << 24), st.sampled_from([1.0, 0.1, 0.01]))
def test_a_trace_has_every_gradient_once_in_the_order_of_the_backward_pass(
    name: str, bucket: int, scale: float
) -> None:
    bucket = max(bucket, PARAMETERS[name] * 4 // 3000)
    model = models.MODELS[name]
    trace = models.trace(model, bucket, scale)
    layers = len(model.layers)
    assert sum(it.bytes for it in trace.tensors) == pytest.approx(4 * model.parameters * scale, abs=4 * layers)
    assert all(0 < it.bytes <= bucket and it.bytes % 4 == 0 for it in trace.tensors)
    ready, numbers = [it.ready for it in trace.tensors], [it.layer for it in trace.tensors]
    assert ready == sorted(ready)
    assert numbers == sorted(numbers, reverse=True)
    forward = sum(layer.flops for layer in model.layers) * model.batch / model.speed * SECOND * scale
    assert trace.compute == pytest.approx(3 * forward, rel=0.01)
    assert ready[0] >= forward
    assert ready[-1] == trace.compute


def test_the_distributions_have_the_means_of_the_papers_scripts() -> None:
    assert background.WEB_SEARCH.mean / 1460 == pytest.approx(1138, rel=0.01)
    assert background.DATA_MINING.mean / 1460 == pytest.approx(5117, rel=0.01)


@given(st.sampled_from(sorted(background.DISTRIBUTIONS)), st.floats(0, 1))
def test_sizes_follow_their_distribution(name: str, part: float) -> None:
    sizes = background.DISTRIBUTIONS[name]
    size = sizes.at(part)
    assert sizes.points[0][0] <= size <= sizes.points[-1][0]
    at_most = max((it for size_there, it in sizes.points if size_there <= size), default=0.0)
    assert at_most <= part + 1e-9 or size in {round(point) for point, _ in sizes.points}


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_flows_are_the_load_that_was_asked_for(load: float) -> None:
    """Over so many flows the mean of web search's sizes is within 3 % of its distribution's, with three deviations."""
    hosts, duration = 16, 20 * SECOND
    flows = background.poisson(background.WEB_SEARCH, load, hosts, RATE, duration, 1)
    offered = sum(size for *_, size in flows) * 8 / (hosts * RATE * duration / SECOND)
    assert len(flows) > 30_000
    assert offered == pytest.approx(load, rel=0.03)
    starts = [start for start, *_ in flows]
    assert starts == sorted(starts)
    assert 0 <= starts[0] <= starts[-1] < duration
    gaps = [b - a for a, b in pairwise(starts)]
    assert statistics.pstdev(gaps) == pytest.approx(statistics.fmean(gaps), rel=0.05), "as of a Poisson process"
    sent = [sum(size for _, a, _, size in flows if a == host) for host in range(hosts)]
    assert min(sent) > 0.7 * max(sent), "from every host alike"
    assert all(a != b for _, a, b, _ in flows)


def test_a_seed_repeats_its_flows_and_another_has_others() -> None:
    asked = background.DATA_MINING, 0.4, 8, RATE, SECOND
    assert background.poisson(*asked, 7) == background.poisson(*asked, 7) != background.poisson(*asked, 8)


@pytest.mark.parametrize(("load", "hosts", "seconds"), [(0.0, 8, 1), (1.0, 8, 1), (0.5, 1, 1), (0.5, 1000, 100_000)])
def test_a_background_that_makes_no_sense_is_refused(load: float, hosts: int, seconds: int) -> None:
    with pytest.raises(SpecificationError):
        background.poisson(background.WEB_SEARCH, load, hosts, RATE, seconds * SECOND, 1)


@pytest.mark.parametrize("tail", [1.5, 3.0])
def test_the_99th_percentile_of_computations_is_so_many_times_the_median(tail: float) -> None:
    typical = 1_000_000
    late = [typical + it for row in stragglers.delays(100, 1000, typical, tail, 1) for it in row]
    cuts = statistics.quantiles(late, n=100)
    assert cuts[98] / cuts[49] == pytest.approx(tail, rel=0.03)
    assert min(late) == typical


def test_without_a_tail_nobody_is_late() -> None:
    assert stragglers.delays(3, 2, 1000, 1.0, 1) == ((0, 0, 0), (0, 0, 0))
