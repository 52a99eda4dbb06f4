# SPDX-License-Identifier: Apache-2.0
"""Real agents on loopback addresses: a job from its rendezvous to its end, and what is said when something is wrong."""

import ctypes
import json
import socket
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gradlane import wire
from gradlane.client.connection import Connection
from gradlane.client.tensor import Tensor
from gradlane.errors import AgentError
from tests.support import zygote
from tests.support.agents import GRADLANE, NETWORK, PATIENCE, Agent, command, until
from tests.support.members import KEY
from tests.support.needs import needs_root


def job_file(folder: Path, workers: int, servers: int = 0, name: str = "job.toml", **changes: str) -> Path:
    values = {"key": KEY, "push": "0.0", "wire": "float32", "id": "7"}
    values |= {"transport": "", "policy": ""} | changes
    text = f'[job]\nname = "trial"\nid = {values["id"]}\nkey = "{values["key"]}"\n'
    for rank in range(workers + servers):
        kind = "worker" if rank < workers else "server"
        text += f'[[{kind}]]\nrank = {rank}\nhost = "h{rank}"\naddress = "{NETWORK}.{rank + 1}"\n'
    text += f'[transport]\nrate = "1gbit"\nwire = "{values["wire"]}"\n{values["transport"]}\n'
    text += f"[loss]\npush = {values['push']}\n[policy]\n{values['policy']}\n"
    path = folder / name
    path.write_text(text + "[slots]\nbase = 0\nmask = 4095\n")
    return path


def join(files: Sequence[Path], hosts: Sequence[Agent]) -> list[Connection]:
    """One connection per file, all at the same time; raises the first error."""
    with ThreadPoolExecutor(len(files)) as pool:
        futures = [pool.submit(Connection, file, r, 0, hosts[r].socket) for r, file in enumerate(files)]
        return [future.result() for future in futures]


def tensors(connections: Sequence[Connection], elements: int, *layers: tuple[int, int]) -> list[Tensor]:
    """The same tensor at every worker, of the job's wire type."""
    return [c.tensor("w", elements, c.job.transport.wire, layers or [(0, 0)]) for c in connections]


def all_reduce(shared: Sequence[Tensor]) -> None:
    """Runs one all-reduce at every worker; raises the first error."""
    for handle in [tensor.submit() for tensor in shared]:
        handle.wait(PATIENCE)


def error_of(tensor: Tensor) -> str:
    """Why an all-reduce fails."""
    with pytest.raises(AgentError) as failure:
        tensor.submit().wait(PATIENCE)
    return str(failure.value)


def close(connections: Sequence[Connection]) -> list[dict]:
    with ThreadPoolExecutor(len(connections)) as pool:
        return list(pool.map(Connection.close, connections))


@pytest.mark.parametrize(("wire_type", "servers"), [("float32", 0), ("float16", 0), ("float32", 1)])
def test_the_mean_is_exact_and_one_job_follows_another(
    hosts: list[Agent], tmp_path: Path, wire_type: str, servers: int
) -> None:
    elements = 100_003
    for number in (1, 2):
        # A ring adds in the ring's order.
        file = job_file(tmp_path, 3, servers, wire=wire_type, id=str(number), transport='collective = "direct"')
        serve = [*GRADLANE, "serve", "--job", str(file), "--rank", "3"]
        server = zygote.start([*serve, "--socket", str(hosts[3].socket)]) if servers else None
        connections = join([file] * 3, hosts)
        shared = tensors(connections, elements, (0, 0), (50_000, 1))
        for step in range(3):
            total = np.zeros(elements, np.float32)
            for rank, contribution in enumerate(t.contribution for t in shared):
                contribution[:] = np.random.default_rng([rank, step]).standard_normal(elements)
                total += contribution
            all_reduce(shared)
            expected = (total / np.float32(3)).astype(shared[0].result.dtype)
            for result in (t.result for t in shared):
                np.testing.assert_array_equal(result, expected)
        counts = close(connections)
        assert all(c["budget_violations"] == 0 and c["slices_lost"] == 0 for c in counts)
        if server is not None:
            assert server.wait(PATIENCE) == 0


def test_a_grid_adds_in_its_own_order_at_all_ranks(hosts: list[Agent], tmp_path: Path) -> None:
    """Two rows: owners of the first one add the second one's contributions as one, those of the second all in turn."""
    elements = 1_500_000  # two partitions
    connections = join([job_file(tmp_path, 4, transport='collective = "grid"')] * 4, hosts)
    shared = [c.tensor("w", elements, "float32", [(0, 0)], "sum") for c in connections]
    given = [np.random.default_rng(rank).standard_normal(elements).astype(np.float32) for rank in range(4)]
    for tensor, values in zip(shared, given, strict=True):
        tensor.contribution[:] = values
    for handle in [tensor.submit() for tensor in shared]:
        handle.wait(PATIENCE)
    in_turn, by_row = given[0] + given[1] + given[2] + given[3], (given[0] + given[1]) + (given[2] + given[3])
    result = np.array(shared[0].result)
    assert ((result == in_turn) | (result == by_row)).all()
    assert 0.05 < np.mean(result != in_turn) / np.mean(by_row != in_turn) < 0.95
    for tensor in shared[1:]:
        np.testing.assert_array_equal(tensor.result, result)
    assert all(c["budget_violations"] == 0 and c["slices_lost"] == 0 for c in close(connections))


def test_stragglar_adds_exactly_whoever_is_late(hosts: list[Agent], tmp_path: Path) -> None:
    elements = 1_500_000  # two partitions
    file = job_file(tmp_path, 4, transport='collective = "stragglar"\nstraggler = 1')
    connections = join([file] * 4, hosts)
    shared = [c.tensor("w", elements, "float32", [(0, 0)], "sum") for c in connections]
    for late in (1, 3):
        for rank, tensor in enumerate(shared):
            tensor.contribution[:] = np.arange(elements) % 1000 + rank
        handles = [tensor.submit() for rank, tensor in enumerate(shared) if rank != late]
        assert not any(handle.done() for handle in handles)
        for handle in [*handles, shared[late].submit()]:
            handle.wait(PATIENCE)
        for tensor in shared:
            np.testing.assert_array_equal(tensor.result, np.arange(elements) % 1000 * 4 + 6)
    # Only the straggler has no part in what the others reduce among themselves.
    received = [int(c["slices_expected"]) for c in close(connections)]
    assert [rank for rank in range(4) if received[rank] == min(received)] == [1]


def test_another_job_file_is_refused_and_named(hosts: list[Agent], tmp_path: Path) -> None:
    good = job_file(tmp_path, 2)
    for name, changes, words in (
        ("loss.toml", {"push": "0.1"}, "has another job file"),
        ("trace.toml", {"transport": "trace_every = 7"}, "has another job file"),
    ):
        with pytest.raises(AgentError, match=words):
            join([good, job_file(tmp_path, 2, name=name, **changes)], hosts)


HOST_TAGGING = 'tagging = "host"'
CLASSES = "queue_classes = [{ layers = [0, 0], class = 6 }, { layers = [1, 9], class = 5 }]"
PRECEDENCES = "drop_precedences = [{ magnitudes = [0, 127], drop_precedence = 3 }]"


def test_where_hosts_tag_the_policy_must_be_the_same(hosts: list[Agent], tmp_path: Path) -> None:
    files = [
        job_file(tmp_path, 2, name=f"{rank}.toml", transport=HOST_TAGGING, policy=policy)
        for rank, policy in enumerate([CLASSES, PRECEDENCES])
    ]
    with pytest.raises(AgentError, match="has another job file"):
        join(files, hosts)


SO_ATTACH_FILTER, SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS, PACKET_IGNORE_OUTGOING = 26, 33, 263, 6, 23


def sniffer_on_loopback() -> socket.socket:
    """Takes in what comes from an address of the tests, and has room for it, whatever else there is on loopback."""
    made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 0)
    ours = int.from_bytes(socket.inet_aton(f"{NETWORK}.0"), "big")
    # If the IPv4 source, but for its last byte, is ours: up to 256 KiB, else nothing (ld, and, jeq, ret, ret of BPF).
    steps = [(0x20, 0, 0, 12), (0x54, 0, 0, 0xFFFFFF00), (0x15, 0, 1, ours), (0x06, 0, 0, 1 << 18), (0x06, 0, 0, 0)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    made.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(steps), ctypes.addressof(program)))
    made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)  # each comes in as well
    made.bind(("lo", 0x0800))
    return made


def datagrams_of(sniffer: socket.socket) -> Iterator[tuple[wire.Header, int]]:
    """Header and TOS of the datagrams that the socket has taken in; segments that travel together are told apart."""
    while True:
        try:
            packet = sniffer.recv(1 << 17)
        except BlockingIOError:
            return
        if packet[9] != socket.IPPROTO_UDP or int.from_bytes(packet[22:24], "big") != wire.UDP_PORT:
            continue
        data = packet[28:]
        while data:
            header = wire.Header.unpack(data)
            yield header, packet[1]
            data = data[wire.HEADER_BYTES + header.length :]


@needs_root
@pytest.mark.parametrize("servers", [0, 1])
def test_in_a_critical_phase_less_of_contributions_and_of_results_may_be_lost(
    hosts: list[Agent], tmp_path: Path, servers: int
) -> None:
    """Phases are of one step here: the norm is that of the step before, and compared to that of the one before it."""
    values, critical = [1.0, 1.1, 1.2, 3.0, 3.0, 3.0], {1, 2, 5}
    loss = "0.2\npull = 0.1\nadaptive = { critical = 0.5, threshold = 0.5, window = 1 }"
    file = job_file(tmp_path, 2, servers, push=loss, transport='collective = "direct"')
    serve = [*GRADLANE, "serve", "--job", str(file), "--rank", "2"]
    server = zygote.start([*serve, "--socket", str(hosts[2].socket)]) if servers else None
    with sniffer_on_loopback() as sniffer:
        connections = join([file] * 2, hosts)
        shared = tensors(connections, 100_000, (0, 0))
        for value in values:
            for tensor in shared:
                tensor.contribution[:] = value
            all_reduce(shared)
        close(connections)
        assert server is None or server.wait(PATIENCE) == 0
        sent = [header for header, _ in datagrams_of(sniffer) if header.kind == wire.Kind.DATA]
    ranks = range(2 + servers)
    assert {(h.step, h.source) for h in sent} == {(step + 1, rank) for step in range(len(values)) for rank in ranks}
    assert {h.source for h in sent if h.flags & wire.Flag.PULL} == ({2} if servers else {0, 1})
    for header in sent:
        tolerated = (100_000 if header.flags & wire.Flag.PULL else 200_000) // (2 if header.step in critical else 1)
        assert header.budget == tolerated * header.slices // 1_000_000


@needs_root
def test_an_agent_that_tags_writes_dscp_and_ecn_on_each_datagram(hosts: list[Agent], tmp_path: Path) -> None:
    elements = 100_000
    file = job_file(tmp_path, 2, push="0.2", transport=HOST_TAGGING, policy=f"{CLASSES}\n{PRECEDENCES}")
    with sniffer_on_loopback() as sniffer:
        connections = join([file] * 2, hosts)
        shared = tensors(connections, elements, (0, 0), (50_000, 3))
        for contribution in (t.contribution for t in shared):
            contribution[:] = np.random.default_rng(1).standard_normal(elements)
        all_reduce(shared)
        counts = close(connections)
        assert all(c["send_errors"] == 0 and c["budget_violations"] == 0 for c in counts)
        seen = list(datagrams_of(sniffer))
        packets, dropped = struct.unpack("II", sniffer.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    assert packets
    assert not dropped
    for header, tos in seen:
        queue_class = {0: 6, 3: 5}[header.layer] if header.kind in (wire.Kind.DATA, wire.Kind.REPAIR) else 7
        if header.kind == wire.Kind.TRACE and not header.flags & wire.Flag.RETURNED:
            queue_class = {0: 6, 3: 5}[header.layer]
        droppable = header.kind == wire.Kind.DATA and header.budget and header.magnitude < 128
        assert tos == queue_class << 5 | (3 << 2 if droppable else 2), header
    assert len({tos for _, tos in seen}) == 5


@pytest.mark.parametrize("tagging", ["switch", "host"])
def test_a_batch_that_the_kernel_cannot_segment_goes_out_one_by_one(
    hosts: list[Agent], tmp_path: Path, tagging: str
) -> None:
    # 16 datagrams of 9 kB are more than one UDP send takes.
    transport = f'slice_bytes = 8936\nbuffer = "4MB"\ntagging = "{tagging}"'
    file = job_file(tmp_path, 2, transport=transport, policy=f"{CLASSES}\n{PRECEDENCES}")
    connections = join([file] * 2, hosts)
    shared = tensors(connections, 500_000, (0, 0), (200_000, 3))
    for rank, contribution in enumerate(t.contribution for t in shared):
        contribution[:] = rank + 1
    all_reduce(shared)
    for result in (t.result for t in shared):
        assert (result == 1.5).all()
    assert [(c["send_errors"], c["send_errno"]) for c in close(connections)] == [(0, 0)] * 2


def test_the_status_tells_the_ways_that_traces_took(hosts: list[Agent], tmp_path: Path) -> None:
    connections = join([job_file(tmp_path, 2, transport="trace_every = 1")] * 2, hosts)
    shared = tensors(connections, 1000, (0, 0))
    all_reduce(shared)
    until(lambda: connections[0].statistics()["traces_returned"])
    found = connections[0].statistics()
    assert found["flows"]["1"]["paths"] == {"": found["traces_returned"]}  # loopback has no switch
    assert found["flows"]["1"]["hops"] == []
    text = command("status", "--socket", hosts[0].socket, check=True).stdout
    assert "no switch on the path adds records" in text
    close(connections)


def test_different_models_are_named(hosts: list[Agent], tmp_path: Path) -> None:
    connections = join([job_file(tmp_path, 2)] * 2, hosts)
    connections[0].tensor("w", 5_000, "float32")
    with pytest.raises(AgentError, match=r"rank 1 .* and rank 0 .* disagree about tensor 'w': elements 90000"):
        connections[1].tensor("w", 90_000, "float32")


def test_what_an_agent_refuses(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2)
    with pytest.raises(AgentError, match=f"rank 1 has address {NETWORK}.2, but this is the agent of {NETWORK}.1"):
        Connection(file, 1, 0, hosts[0].socket)
    second = command("agent", "--address", hosts[0].address, "--socket", "/tmp/none")
    assert second.returncode == 1
    assert f"TCP port {wire.CONTROL_PORT} of {hosts[0].address} is in use" in second.stderr
    # A message that is none ends that client, not the agent.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(hosts[0].socket))
        sock.send(b"\xff\x00 no JSON")
        assert "error" in json.loads(sock.recv(65536))["op"]
    status = command("status", "--socket", hosts[0].socket, "--json", check=True)
    assert json.loads(status.stdout)["addresses"] == [hosts[0].address]
    with pytest.raises(AgentError, match="no agent listens"):
        Connection(file, 0, 0, tmp_path / "nobody.sock")
