# SPDX-License-Identifier: Apache-2.0
"""An agent's status as lines of text: what `gradlane status` prints once and `gradlane top` keeps on the screen."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradlane.ipc.status import (
    AgentStatus,
    Counts,
    JobStatus,
    OwnershipStatus,
    PeerStatus,
    StragglerStatus,
    SumsStatus,
)
from gradlane.job import links
from gradlane.units import format_rate

# From this part of the loss budget on, more loss soon costs repairs.
BUDGET_WARNING = 0.9


@dataclass(frozen=True)
class Line:
    """A line and how it looks: "" plain, "title", "head" or "warning"."""

    text: str
    look: str = ""


@dataclass(frozen=True)
class Flow:
    """What passed between this rank and a peer, or in one layer class, within some time. None: not known.

    Rates in bit/s, `rtt` in s, the others fractions: `repaired` of the slices sent, `loss` and `late` of those
    expected, `budget` of the loss budgets of the messages received, `marked` (ECN) of the slices delivered.
    """

    name: str
    about: str
    out: float | None = None
    into: float | None = None
    pace: float | None = None
    rtt: float | None = None
    repaired: float | None = None
    loss: float | None = None
    budget: float | None = None
    late: float | None = None
    marked: float | None = None
    silent: bool = False


@dataclass(frozen=True)
class Column:
    """A column of the tables: what of a Flow it shows, by what factor, with how many decimals."""

    title: str
    attribute: str
    factor: float = 1.0
    decimals: int = 1

    def value(self, flow: Flow) -> float | None:
        """In the column's unit."""
        value: float | None = getattr(flow, self.attribute)
        return None if value is None else value * self.factor

    def cell(self, flow: Flow) -> str:
        """As text; "-" if it is not known."""
        value = self.value(flow)
        return "-" if value is None else f"{value:.{self.decimals}f}"


COLUMNS = (
    Column("out Mbit/s", "out", 1e-6),
    Column("in Mbit/s", "into", 1e-6),
    Column("pace Mbit/s", "pace", 1e-6),
    Column("RTT ms", "rtt", 1e3, 2),
    Column("repaired %", "repaired", 100, 2),
    Column("lost %", "loss", 100, 2),
    Column("budget used %", "budget", 100),
    Column("late %", "late", 100, 2),
    Column("ECN %", "marked", 100, 2),
)
SORT_KEYS = ("name", *(column.title for column in COLUMNS))


def _since(counts: Counts, before: Counts | None) -> Counts:
    """What was counted since `before`; all of it if there is no before, or the job was restarted."""
    if before is None or any(counts.get(key, 0) < value for key, value in before.items()):
        return counts
    return {key: value - before.get(key, 0) for key, value in counts.items()}


def _fraction(counts: Counts, part: str, whole: str) -> float | None:
    if part not in counts or whole not in counts:
        return None
    return counts[part] / counts[whole] if counts[whole] else 0.0


def _flow(name: str, about: str, counts: Counts, seconds: float) -> Flow:
    def rate(key: str) -> float | None:
        return counts[key] * 8 / seconds if key in counts and seconds > 0 else None

    return Flow(
        name,
        about,
        out=rate("bytes_sent"),
        into=rate("bytes_received"),
        repaired=_fraction(counts, "slices_repaired", "slices_sent"),
        loss=_fraction(counts, "slices_lost", "slices_expected"),
        budget=_fraction(counts, "slices_lost", "budget_total"),
        late=_fraction(counts, "slices_late", "slices_expected"),
        marked=_fraction(counts, "ecn_marked", "slices_delivered"),
    )


def _peer_flow(rank: str, peer: PeerStatus, before: PeerStatus | None, seconds: float) -> Flow:
    counts = _since(peer.get("counts", {}), before.get("counts") if before else None)
    about = f"{peer.get('host', '?')} {peer.get('address', '')}"
    control = peer.get("control", "connected")
    if control == "silent":
        about += f", silent for {peer.get('heard_seconds', 0.0):.0f} s"
    elif control == "none":
        about += ", not connected"
    elif control == "dead":
        about += ", dead"
    return replace(
        _flow(f"rank {rank}", about, counts, seconds),
        pace=peer.get("rate"),
        rtt=peer["srtt_us"] / 1e6 if "srtt_us" in peer else None,
        silent=control != "connected",
    )


def flows(job: JobStatus, before: JobStatus | None, seconds: float) -> tuple[list[Flow], list[Flow], Flow]:
    """Of every peer, of every layer class, and of the whole job."""
    old_peers = before["peers"] if before else {}
    peers = [_peer_flow(rank, peer, old_peers.get(rank), seconds) for rank, peer in job["peers"].items()]
    classes: list[Flow] = []
    old_classes = before.get("classes", []) if before else []
    for index, row in enumerate(job.get("classes", [])):
        old = old_classes[index].get("counts") if index < len(old_classes) else None
        name = f"layers {row['layers'][0]}-{row['layers'][1]}" if "layers" in row else "others"
        about = f"push {row.get('push', 0):.3g}, pull {row.get('pull', 0):.3g}"
        classes.append(
            _flow(name, about, _since(row.get("counts", {}), old), seconds),
        )
    total = _flow("all", "", _since(job["counts"], before["counts"] if before else None), seconds)
    # Bytes are counted by peer alone.
    out, into = sum(peer.out or 0.0 for peer in peers), sum(peer.into or 0.0 for peer in peers)
    return peers, classes, replace(total, out=out, into=into)


def _sorted(rows: list[Flow], sort: str) -> list[Flow]:
    column = next((c for c in COLUMNS if c.title == sort), None)
    if column is None:
        return rows
    return sorted(rows, key=lambda flow: -(column.value(flow) or 0.0))


def _table(title: str, rows: Sequence[Flow]) -> Iterable[Line]:
    cells = [[flow.name, flow.about, *(column.cell(flow) for column in COLUMNS)] for flow in rows]
    names = [title, "", *(column.title for column in COLUMNS)]
    widths = [max(len(row[k]) for row in [names, *cells]) for k in range(len(names))]

    def text(row: list[str]) -> str:
        left = "  ".join(cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True))
        right = "  ".join(cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True))
        return f"  {left}  {right}"

    yield Line(text(names), "head")
    for flow, row in zip(rows, cells, strict=True):
        yield Line(text(row), "warning" if flow.silent or (flow.budget or 0) >= BUDGET_WARNING else "")


def duration(seconds: float) -> str:
    """E.g. "3 h 5 min"."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{value} {unit}" for value, unit in parts[:2])


def size(count: float) -> str:
    """E.g. "12.3 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _shares(ownership: OwnershipStatus) -> str:
    """Who has another share than most."""
    texts = [f"{share:.0%}" for share in ownership["shares"]]
    usual = max(texts, key=texts.count)
    others = [f"rank {rank} {text}" for rank, text in zip(ownership["ranks"], texts, strict=True) if text != usual]
    return ", ".join([*others, f"all others {usual} each" if others else f"{usual} each"])


def _plan(ownership: OwnershipStatus) -> str:
    """How steps are reduced."""
    algorithm, straggler = ownership["algorithm"], ownership["straggler"]
    if algorithm == "direct":
        return f"direct, owners {_shares(ownership)}"
    without = "" if straggler is None else f" without rank {straggler}"
    return f"{algorithm}{without} from {size(ownership['least'])} on, else direct, owners {_shares(ownership)}"


def _straggler(it: StragglerStatus) -> Line:
    """Who is late or has a slow link, and the evidence."""
    texts: list[str] = []
    kind = "late" if it["late_steps"] else "slow"
    if it["late_steps"]:
        low, median, high = (f"{it[key] * 1e3:.0f}" for key in ("low", "median", "high"))
        texts.append(f"by {median} ms ({low} to {high}) in {it['late_steps']} of the last {it['steps']} steps")
    if it["link"] is not None:
        texts.append(links.text(it["link"]))
    named = ": a straggler" if it["straggler"] else ""
    return Line(
        f"  {kind}: {it['name']}, {'; '.join(texts)}{named}", "warning" if named or it["link"] is not None else ""
    )


def _sums(it: SumsStatus, counts: Counts, now: float, seconds: float) -> Line:
    """Who sums gradients, and how well a switch does it. `counts`: of the last `seconds`."""
    summed = counts["summed_bytes"] * 8 / seconds if seconds > 0 else 0.0
    repaired = _fraction(counts, "sums_repaired", "sums_sent") or 0.0
    parts = [
        f"{summed * 1e-6:.1f} Mbit/s of gradients by the switch, {it['share']:.0%} of all bytes so far",
        f"{repaired:.2%} of its slices sent again, {counts['sums_clipped']} elements clipped",
        f"{_fraction(counts, 'sums_left_out', 'sums_sent') or 0.0:.2%} left out of sums within the budget",
        f"{counts['sum_reruns']} steps run again by hosts, which took over {it['fallbacks']} time(s)",
    ]
    by = "the switch sums" if it["by_switch"] else "hosts sum, no switch"
    text = f"  {by}, for {duration(now - it['since'])} ({it['reason']}): {'; '.join(parts)}"
    return Line(text, "" if it["by_switch"] else "warning")


def job_lines(
    name: str, job: JobStatus, before: JobStatus | None, now: float, seconds: float, sort: str = "name"
) -> Iterable[Line]:
    """A job: a title and the tables of its peers and layer classes."""
    parts = [f"rank {job['rank']}", job["state"], f"started {duration(now - job['since'])} ago"]
    parts += [f"step {job['step']}"] if "step" in job else []
    parts += [f"{job['in_flight']} in flight"] if "in_flight" in job else []
    yield Line(f"job {name}: {', '.join(parts)}", "title")
    if memory := job.get("memory"):
        yield Line(f"  early contributions: {size(memory['used'])} of {size(memory['limit'])}")
    if (conditions := job.get("conditions")) and "slice_bytes" in job:
        yield Line(
            f"  paths, as measured at the join: slices of {job['slice_bytes']} bytes, at least "
            f"{format_rate(conditions['rate'])}, one-way delay up to {conditions['latency'] * 1e6:.0f} us"
        )
    for why in dict.fromkeys(job.get("dead", {}).values()):
        yield Line(f"  goes on without: {why}", "warning")
    if late := job.get("late"):
        yield Line(f"  {late}", "warning")
    for straggler in job.get("stragglers", []):
        yield _straggler(straggler)
    for it in job.get("left_out", []):
        yield Line(
            f"  left out: {it['name']}, of {it['steps']} steps, {it['recent']} of the last {it['window']} "
            f"(at most {it['budget']})",
            "warning" if it["recent"] >= it["budget"] else "",
        )
    if (ownership := job.get("ownership")) and ownership["reason"]:
        yield Line(f"  plan from step {ownership['first']} on: {_plan(ownership)} ({ownership['reason']})")
    if sums := job.get("sums"):
        yield _sums(sums, _since(job["counts"], before["counts"] if before else None), now, seconds)
    peers, classes, total = flows(job, before, seconds)
    yield from _table("peer", [*_sorted(peers, sort), total])
    if classes:
        yield from _table("layer class", _sorted(classes, sort))


def agent_lines(
    status: AgentStatus,
    before: AgentStatus | None,
    now: float,
    seconds: float | None = None,
    sort: str = "name",
    more: Callable[[JobStatus], Iterable[Line]] | None = None,
) -> list[Line]:
    """The agent and its jobs. Rates are those since `before`, `seconds` ago; without it, since a job was joined.

    `more` adds lines to each job.
    """
    addresses = ", ".join(status["addresses"])
    jobs = status["jobs"]
    lines = [
        Line(
            f"agent {status['version']} of {addresses}: pid {status['pid']}, up "
            f"{duration(now - status['started'])}; {len(jobs)} job(s), {status['clients']} client(s); "
            f"since its start {status['ended']} job(s) ended, {status['failed']} failed",
            "title",
        )
    ]
    if lost := status["log_lines_lost"]:
        lines.append(Line(f"{lost} log line(s) could not be written", "warning"))
    for name, job in jobs.items():
        old = before["jobs"].get(name) if before else None
        since = now - job["since"] if seconds is None else seconds
        lines += [Line(""), *job_lines(name, job, old, now, since, sort)]
        lines += more(job) if more else []
    return lines


def details(job: JobStatus) -> Iterable[Line]:
    """What `gradlane status` adds: every count above zero, and the paths through the fabric."""
    counts: dict[str, Any] = {key: value for key, value in job["counts"].items() if value}
    if counts:
        yield Line("  counts", "head")
    for key, value in counts.items():
        yield Line(f"    {key:20} {value}")
    for rank, peer in job["peers"].items():
        for path, count in peer.get("paths", {}).items():
            ports = f"switch:ports {path}" if path else "no switch on the path adds records"
            yield Line(f"  path to rank {rank}: {ports} ({count} traces)")
        for hop in peer.get("hops", []):
            yield Line(
                f"    switch {hop['switch']}: port {hop['egress_port']} {hop['color']}, in class {hop['queue_class']} "
                f"{hop['depth']} {hop['depth_unit']}, waited {hop['wait_us']:.0f} us"
            )


def plain(lines: Iterable[Line]) -> str:
    """Without colours."""
    return "\n".join(line.text for line in lines)
