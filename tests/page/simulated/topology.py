# SPDX-License-Identifier: Apache-2.0
"""Made-up fabrics: who is connected to whom, and which jobs run where."""

from dataclasses import dataclass, field

GIGABIT = 1_000_000_000
PRECEDENCES = "[{ magnitudes = [0, 63], drop_precedence = 3 }, { magnitudes = [64, 127], drop_precedence = 2 }]"


@dataclass(frozen=True)
class Job:
    """A made-up job. `roots` sum it, if there are any; `reports` are what its agents would tell."""

    name: str
    id: int
    workers: tuple[str, ...]
    servers: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    layers: int = 8
    reports: bool = True
    step_seconds: float = 0.2
    bits: float = 0.25 * GIGABIT  # of each worker, in the mean


@dataclass(frozen=True)
class Topology:
    """`hosts`: by name, their switch and port; `links`: pairs of SWITCH:PORT, `rate` in bit/s of all of them."""

    switches: tuple[str, ...]
    hosts: dict[str, tuple[str, int]]
    links: tuple[tuple[str, str], ...]
    jobs: tuple[Job, ...]
    rate: int = GIGABIT
    up: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # by switch, its links to the layer above


def small() -> Topology:
    """Two leaves, two spines, four hosts; a summed job, one with agents' reports, and one without."""
    hosts = {f"h{i + 1}": (f"leaf{i // 2 + 1}", i % 2 + 1) for i in range(4)}
    links = tuple((f"leaf{leaf}:{spine + 2}", f"spine{spine}:{leaf}") for leaf in (1, 2) for spine in (1, 2))
    jobs = (
        Job("train", 1, ("h1", "h2", "h3", "h4"), layers=12, step_seconds=0.21, bits=0.30 * GIGABIT),
        Job("sums", 2, ("h1", "h3", "h4"), roots=("spine1", "spine2"), layers=6, step_seconds=0.12),
        Job("evaluate", 3, ("h2", "h4"), layers=4, reports=False, bits=0.08 * GIGABIT),
    )
    return _with_uplinks(("leaf1", "leaf2", "spine1", "spine2"), hosts, links, jobs)


def large(*, pods: int = 8, leaves: int = 4, hosts_of_leaf: int = 32, jobs: int = 100) -> Topology:
    """Three layers: by default 32 leaves, 16 spines, 16 cores, 1,024 hosts and 100 jobs."""
    spines, cores = 2, 16
    leaf_names = [f"leaf{i + 1}" for i in range(pods * leaves)]
    spine_names = [f"spine{i + 1}" for i in range(pods * spines)]
    core_names = [f"core{i + 1}" for i in range(cores)]
    hosts = {
        f"h{at * hosts_of_leaf + i + 1}": (leaf, i + 1)
        for at, leaf in enumerate(leaf_names)
        for i in range(hosts_of_leaf)
    }
    links: list[tuple[str, str]] = []
    for pod in range(pods):
        for j in range(spines):
            spine = spine_names[pod * spines + j]
            for i in range(leaves):
                links.append((f"{leaf_names[pod * leaves + i]}:{100 + j}", f"{spine}:{i + 1}"))
            for k in range(cores // spines):
                links.append((f"{spine}:{100 + k}", f"{core_names[j * cores // spines + k]}:{pod + 1}"))
    names = list(hosts)
    members = len(names) // jobs
    made = tuple(
        Job(
            f"job{n + 1}",
            n + 1,
            tuple(names[(n + i * jobs) % len(names)] for i in range(members)),
            layers=8,
            reports=n % 3 != 2,
            step_seconds=0.1 + 0.01 * (n % 20),
            bits=(0.02 + 0.01 * (n % 9)) * GIGABIT,
            roots=tuple(core_names[:4]) if n % 5 == 0 else (),
        )
        for n in range(jobs)
    )
    return _with_uplinks((*leaf_names, *spine_names, *core_names), hosts, tuple(links), made)


def job_file(topology: Topology, it: Job) -> str:
    """What GET /v1/jobs/NAME gives of it: a job file that Gradlane takes."""
    hosts = list(topology.hosts)
    places = [(rank, host, hosts.index(host)) for rank, host in enumerate(it.workers)]
    workers = "\n".join(
        f'[[worker]]\nrank = {rank}\nhost = "{host}"\naddress = "10.{place >> 8}.{place & 255}.2"\n'
        for rank, host, place in places
    )
    return f"""# {it.name}, of the simulated fabric.

[job]
name = "{it.name}"
id = {it.id}
key = "{it.id:032x}"

{workers}
[transport]
rate = "1gbit"

[loss]
push = 0.05

[policy]
queue_classes = [{{ layers = [0, 1], class = 6 }}, {{ layers = [2, 65535], class = 5 }}]
drop_precedences = {PRECEDENCES}
yellow = 3
red = 2

[slots]
base = {it.id * 256}
mask = 255
"""


def _with_uplinks(
    switches: tuple[str, ...],
    hosts: dict[str, tuple[str, int]],
    links: tuple[tuple[str, str], ...],
    jobs: tuple[Job, ...],
) -> Topology:
    up: dict[str, list[tuple[str, str]]] = {name: [] for name in switches}
    for link in links:
        up[link[0].split(":")[0]].append(link)
    return Topology(switches, hosts, links, jobs, up=up)
