# SPDX-License-Identifier: Apache-2.0
"""Every scheme of a job file on networks that lose frames by chance, and behind a congested port.

It ends, its workers learn what none of them can learn alone, and agree after the last average.
"""

import contextlib
import functools
import itertools
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradlane import Communicator, toml_file
from gradlane.job import JobError
from gradlane.job import sync as settings
from gradlane.sync import Synchroniser
from lab.net.interfaces import lossy
from tests.support.agents import Agent
from tests.support.communicators import each, join
from tests.support.lan import Lan
from tests.support.members import job_file
from tests.support.namespaces import socket_in

pytestmark = pytest.mark.long

HOSTS = 4  # and one more, from which other traffic comes
COUNT = 20_000
TRUTH = np.linspace(-1, 1, COUNT, dtype=np.float32)
STEPS, PATIENCE = 80, 30  # at least; s, at most
COMPUTATION = 0.01  # s of a step: who does not wait would be done before anything has come
ROUNDS = ("ds-sync", "local-sgd", "diloco", "acco")
RATE, NOISE = 0.1, 0.3
# A worker sees nothing of every fourth weight, and is this far from the truth if it trains alone.
ALONE = np.sqrt(np.square(TRUTH).mean() / HOSTS)


class Laboratory:
    """A network, agents on it, and how well each scheme learns there while nothing is wrong."""

    def __init__(self, lan: Lan, hosts: list[Agent], folder: Path) -> None:
        self.lan, self._hosts, self._folder = lan, hosts, folder
        self.undisturbed = functools.cache(lambda scheme: self.train(scheme)[1])

    def train(self, scheme: str) -> tuple[float, float, int]:
        """The error of the worker that is furthest from the truth before the last average; that of what they have after
        it, all the same; and how many slices were sent again or lost. Gradients have noise of their own."""
        chosen = settings.parse(toml_file.parse(JobError, f'scheme = "{scheme}"', "the test"))
        every = "every = 2\n" if "every" in chosen.options else ""  # of hundreds of steps, else
        lines = f'[loss]\npush = 0.1\n[sync]\nscheme = "{scheme}"\n{every}'
        file = job_file(self._folder, self.lan.addresses[:HOSTS], lines=lines)
        ranks = join(file, self._hosts, HOSTS)
        learned, end = set[int](), time.monotonic() + PATIENCE

        def train(c: Communicator) -> tuple[np.ndarray, np.ndarray]:
            random, weights = np.random.default_rng(c.rank), np.zeros(COUNT, np.float32)
            seen = np.arange(COUNT) % HOSTS != c.rank
            synchroniser = Synchroniser(c, [weights])
            for step in itertools.count(1):
                time.sleep(COMPUTATION)
                weights -= RATE * seen * (weights - TRUTH + NOISE * random.standard_normal(COUNT, np.float32))
                synchroniser.step()
                if step >= STEPS and error(weights) < ALONE / 2:
                    learned.add(c.rank)
                # Without rounds it is chance who meets whom, and how often: they step until all have learned.
                if step >= STEPS and (scheme in ROUNDS or len(learned) == HOSTS or time.monotonic() > end):
                    break
            before = weights.copy()
            synchroniser.average()
            synchroniser.close()
            return before, weights

        before, found = zip(*each(ranks, train), strict=True)
        counts = [rank.statistics() for rank in ranks]
        each(ranks, Communicator.close)
        for weights in found:
            np.testing.assert_array_equal(weights, found[0])
        missed = sum(count["slices_repaired"] + count["slices_lost"] for count in counts)
        return max(map(error, before)), error(found[0]), missed


def error(weights: np.ndarray) -> float:
    return float(np.sqrt(np.square(weights - TRUTH).mean()))


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    folder = tmp_path_factory.mktemp("networks")
    with Lan(HOSTS + 1) as lan, lan.agents(folder) as hosts:
        yield Laboratory(lan, hosts, folder)


def tc(lan: Lan, namespace: str, interface: str, command: str) -> None:
    lan.run(namespace, "tc", *(interface if word == "IF" else word for word in shlex.split(command)))


@contextlib.contextmanager
def losing(lan: Lan, probability: float) -> Iterator[None]:
    """Every host loses frames of both directions."""
    spaces = [lan.space(host) for host in range(HOSTS)]
    for space in spaces:
        for command in lossy(probability).commands:
            tc(lan, space, "eth0", command)
    try:
        yield
    finally:
        for space in spaces:
            tc(lan, space, "eth0", "qdisc del dev IF clsact")


@contextlib.contextmanager
def congested(lan: Lan, host: int) -> Iterator[None]:
    """The port to a host is slower than the job believes, shallow, and half full of traffic that does not yield."""
    over = threading.Event()
    sender = socket_in(lan.space(HOSTS), socket.AF_INET, socket.SOCK_DGRAM)

    def flood() -> None:
        while not over.wait(0.004):
            for _ in range(9):  # 25 Mbit/s
                with contextlib.suppress(ConnectionError):  # nobody listens there
                    sender.sendto(bytes(1400), (lan.addresses[host], 9))

    tc(lan, lan.bridge, f"p{host}", "qdisc add dev IF root tbf rate 50mbit burst 4kb limit 30kb")
    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        sender.close()
        tc(lan, lan.bridge, f"p{host}", "qdisc del dev IF root")


def check(laboratory: Laboratory, scheme: str) -> None:
    """Without rounds it is chance whose gradients a step has, and how old they are: then only far better than alone."""
    worst, together, missed = laboratory.train(scheme)
    assert missed > 0, "the network did it no harm"
    assert worst < ALONE / 2
    if scheme in ROUNDS:
        assert together < 1.2 * laboratory.undisturbed(scheme)


@pytest.mark.parametrize("probability", [0.01, 0.05])
@pytest.mark.parametrize("scheme", settings.SCHEMES)
def test_workers_of_every_scheme_learn_from_one_another_where_frames_are_lost(
    laboratory: Laboratory, scheme: str, probability: float, request: pytest.FixtureRequest
) -> None:
    if probability < 0.05 and not request.config.getoption("--thorough"):
        pytest.skip("less loss than in the other case; --thorough runs it")
    with losing(laboratory.lan, probability):
        check(laboratory, scheme)


@pytest.mark.parametrize("scheme", settings.SCHEMES)
def test_workers_of_every_scheme_learn_from_one_another_behind_a_congested_port(
    laboratory: Laboratory, scheme: str
) -> None:
    with congested(laboratory.lan, 1):
        check(laboratory, scheme)
