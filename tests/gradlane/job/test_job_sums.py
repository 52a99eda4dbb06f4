# SPDX-License-Identifier: Apache-2.0
"""What a job file says of gradients that a switch sums."""

from ipaddress import IPv4Address, IPv6Address

import pytest

from gradlane import job
from gradlane.job import JobError
from gradlane.job.costs import Sums
from gradlane.wire import Lanes
from tests.gradlane.job.texts import ranks

SWITCH = 'collective = "switch"\nwire = "int16"\nmulticast = "239.1.0.1"\n'


def test_a_switch_sums_at_an_address_behind_the_aggregators() -> None:
    it = job.parse(ranks(8, SWITCH), "j")
    assert (it.sum_address, it.sum_lanes) == (IPv4Address("239.1.0.9"), Lanes.INT16_LANES)
    assert it.multicast_address(7) == IPv4Address("239.1.0.8")
    assert (it.transport.sum_window, it.transport.sum_slots) == (64, 1024)
    assert (it.transport.floats, it.changes_algorithm) == ("float32", False)
    wide = job.parse(ranks(2, SWITCH.replace("int16", "int32") + "sum_window = 4\nsum_slots = 8"), "j")
    assert (wide.sum_address, wide.sum_lanes) == (IPv4Address("239.1.0.3"), Lanes.INT32_LANES)
    assert (wide.transport.sum_window, wide.transport.sum_slots) == (4, 8)
    assert job.parse(ranks(32, SWITCH + "sum_window = 2048\nsum_slots = 4096"), "j").transport.sum_window == 2048


def test_workers_may_have_ipv6_addresses() -> None:
    text = ranks(3, SWITCH.replace("239.1.0.1", "ff18::7")).replace("10.0.0.", "fd00::")
    assert job.parse(text, "j").sum_address == IPv6Address("ff18::a")


AUTO = SWITCH.replace("switch", "auto")
WIDE = SWITCH.replace("int16", "int32")


@pytest.mark.parametrize(("workers", "addresses"), [(32, 33), (33, 1), (144, 1), (1024, 1)])
def test_sums_name_up_to_32_workers_and_of_more_the_sums_alone_are_multicast(workers: int, addresses: int) -> None:
    it = job.parse(ranks(workers, WIDE), "j")
    assert (it.sums_name_workers, it.multicast_addresses) == (addresses > 1, addresses)
    assert it.sum_address == IPv4Address("239.1.0.1") + (addresses - 1)
    assert it.multicast_address(0) == (IPv4Address("239.1.0.1") if addresses > 1 else None)
    assert it.multicast_address(workers - 1) == (IPv4Address("239.1.0.32") if addresses > 1 else None)


def test_a_job_that_no_switch_sums_has_an_address_for_each_aggregator_however_many() -> None:
    it = job.parse(ranks(144, 'multicast = "239.1.0.1"'), "j")
    assert (it.sums_name_workers, it.multicast_addresses, it.sum_address) == (True, 144, None)
    assert it.multicast_address(143) == IPv4Address("239.1.0.144")


def test_of_many_workers_late_ones_may_be_left_out() -> None:
    lines = "[loss.late]\nafter = 0.05\nsteps = 1\nwindow = 10"
    assert job.parse(ranks(40, WIDE) + lines, "j").loss.late is not None


def test_the_cost_model_may_give_tensors_to_a_switch() -> None:
    it = job.parse(ranks(8, AUTO), "j")
    assert (it.sum_address, it.sum_lanes, it.changes_algorithm) == (IPv4Address("239.1.0.9"), Lanes.INT16_LANES, False)
    assert it.transport.sum_tensors == 1024 // 128
    assert it.digest != job.parse(ranks(8, SWITCH), "j").digest


def test_a_switch_sums_in_words_of_64_elements_of_16_bits() -> None:
    """So many bytes of lanes, in slices of so many."""
    int16, int32 = (job.parse(ranks(2, AUTO.replace("int16", wire)), "j").transport for wire in ("int16", "int32"))
    for slice_bytes, lanes in ((1420, 1408), (1419, 1280), (8900, 1408), (140, 128)):
        assert int16.sums(1000, slice_bytes) == Sums(2000, lanes, 64)
        assert int32.sums(1000, slice_bytes) == Sums(4000, lanes, 64)
    assert int16.sums(1000, 139) is None
    assert job.parse(ranks(2, ""), "j").transport.sums(1000, 1432) is None


def test_contributions_may_be_lost_in_a_switch_by_layer_as_elsewhere() -> None:
    lines = "[loss]\npush = 0.03\nclasses = [{ layers = [0, 3], push = 0.0 }, { layers = [4, 4], push = 0.1 }]"
    it = job.parse(ranks(2, SWITCH) + lines, "j").loss
    assert (it.push, it.pull, [row.push for row in it.classes]) == (0.03, 0.0, [0.0, 0.1])


def test_other_jobs_have_no_sums() -> None:
    it = job.parse(ranks(2, 'multicast = "239.1.0.1"\nwire = "bfloat16"'), "j")
    assert (it.sum_address, it.sum_lanes, it.transport.floats) == (None, None, "bfloat16")


def test_agents_that_differ_in_sums_notice() -> None:
    files = [SWITCH, SWITCH.replace("16", "32"), SWITCH + "sum_window = 32", SWITCH + "sum_slots = 512"]
    assert len({job.parse(ranks(2, lines), "j").digest for lines in files}) == len(files)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (ranks(1, SWITCH), "transport.collective: is 'switch' with 1 worker(s); it takes 2 to 1024"),
        (ranks(33, SWITCH), "transport.wire: is 'int16' with 33 workers; with more than 32 it must be 'int32'"),
        (ranks(2, 'collective = "switch"\nwire = "int16"'), "transport.multicast: is missing"),
        (
            ranks(2, SWITCH.replace("239.1.0.1", "239.255.255.254")),
            "transport.multicast: is '239.255.255.254'; the 3 multicast addresses",
        ),
        (
            ranks(2, SWITCH.replace("int16", "float32")),
            "transport.wire: is 'float32', but collective is 'switch', which adds integers; it must be 'int16' or",
        ),
        (ranks(2, 'wire = "int32"'), "transport.multicast: is missing: wire is 'int32'"),
        (ranks(1, AUTO), "transport.wire: is 'int16' with 1 worker(s); it takes 2 to 1024"),
        (ranks(33, AUTO), "transport.wire: is 'int16' with 33 workers; with more than 32 it must be 'int32'"),
        (ranks(33, WIDE) + "[loss]\npush = 0.03", "loss.push: is 0.03, but transport.wire is 'int32', for a switch"),
        (
            ranks(33, WIDE) + "[loss]\nclasses = [{ layers = [0, 3], push = 0.1 }]",
            "loss.classes[0].push: is 0.1, but transport.wire is 'int32', for a switch that sums of 33 workers: of "
            "more than 32 it must be 0",
        ),
        (ranks(2, AUTO + 'ownership = "adaptive"'), "transport.ownership: is not 'even', but wire is 'int16'"),
        (ranks(2, AUTO + "ownership = [1, 2]"), "transport.ownership: is not 'even', but wire is 'int16'"),
        (ranks(2, AUTO + 'tagging = "host"'), "transport.tagging: is 'host'"),
        (ranks(2, AUTO + "slice_bytes = 136"), "transport.slice_bytes: is 136; wire is 'int16', which takes at least"),
        (
            ranks(2, AUTO) + '[[server]]\nrank = 2\nhost = "s"\naddress = "10.9.0.1"',
            "transport.wire: is 'int16', for a switch that sums, but the job has servers",
        ),
        *(
            (ranks(2, AUTO.replace("auto", it)), "it must be one of 'float32', 'float16', 'bfloat16'")
            for it in ("direct", "ring")
        ),
        (ranks(2, 'wire = "int8"'), "it must be one of 'float32', 'float16', 'bfloat16', 'int16', 'int32'"),
        (
            ranks(2, SWITCH).replace("10.0.0.", "fd00::"),
            "transport.multicast: is '239.1.0.1'; the 3 multicast addresses",
        ),
        (ranks(2, 'wire = "int32"').replace("10.0.0.", "fd00::"), "sums are multicast; e.g. 'ff18::1'"),
        (ranks(2, SWITCH + 'ownership = "adaptive"'), "transport.ownership: is not 'even', but collective is 'switch'"),
        (ranks(2, SWITCH + 'tagging = "host"'), "transport.tagging: is 'host'"),
        (ranks(2, SWITCH + "slice_bytes = 136"), "transport.slice_bytes: is 136; collective is 'switch', which takes"),
        (ranks(2, SWITCH + "sum_window = 48"), "transport.sum_window: is 48; it must be a power of two, e.g. 32"),
        (ranks(2, SWITCH + "sum_window = 2"), "transport.sum_window: is 2; it must be an integer from 4 to 2048"),
        (ranks(2, SWITCH + "sum_slots = 8192"), "transport.sum_slots: is 8192; it must be an integer from 8 to 4096"),
        (ranks(2, SWITCH + "sum_slots = 64"), "transport.sum_slots: is 64; a tensor takes two windows of 64, so it"),
        (ranks(2, "sum_slots = 64"), "transport.sum_slots: goes with wire = 'int16' or 'int32' alone"),
        (ranks(2, "sum_window = 64"), "transport.sum_window: goes with wire = 'int16' or 'int32' alone"),
        (ranks(2, SWITCH) + "[loss]\npull = 0.03", "loss.pull: is 0.03, but transport.wire is 'int16'"),
        (
            ranks(2, SWITCH) + "[loss]\nclasses = [{ layers = [0, 3], pull = 0.1 }]",
            "loss.classes[0].pull: is 0.1, but transport.wire is 'int16'",
        ),
        *(
            (ranks(2, lines) + table, wrong)
            for lines in (SWITCH, AUTO)
            for table, wrong in (("[loss.adaptive]", "loss.adaptive: can't be: "),)
        ),
        (
            ranks(2, SWITCH).replace("[job]", '[job]\ndeaths = "survive"') + '[sync]\nscheme = "ripples"',
            'job.deaths: is "survive", which goes with no switch that sums (transport.wire)',
        ),
        (
            ranks(2, SWITCH) + '[[server]]\nrank = 2\nhost = "s"\naddress = "10.9.0.1"',
            "transport.collective: is 'switch', but the job has servers",
        ),
    ],
)
def test_what_goes_with_sums_is_named(text: str, wrong: str) -> None:
    with pytest.raises(JobError) as caught:
        job.parse(text, "j")
    assert wrong in str(caught.value)
