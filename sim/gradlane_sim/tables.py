# SPDX-License-Identifier: Apache-2.0
"""The policy of each simulated switch: what gradlane-controller writes to a real one of the same fabric.

What the simulation has no need of is left out: who may send (no host lies), addresses, what goes to the controller,
and DSCPs for switches without P4.
"""

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import Any

from finsy import P4MeterConfig, P4MeterEntry, P4MulticastGroupEntry, P4TableAction, P4TableEntry

from gradlane.job import Job
from gradlane.job.policy import MAX_LAYER, MAX_MAGNITUDE
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Entity, desired_entities

NO_POLICY = {"lowest_metered_class": 0, "yellow": 7, "red": 1, "to_fabric": 0}  # the default of port_policies
EVERY_LAYER, EVERY_MAGNITUDE = (0, MAX_LAYER), (0, MAX_MAGNITUDE)
Row = dict[str, Any]


def policies(fabric: Fabric, jobs: Iterable[Job]) -> list[Row]:
    """The input's "policies". Nodes are numbered as the simulator does it: hosts in the order of the fabric's ports,
    then switches in theirs.

    Raises JobError for jobs that do not fit the fabric or one another, ValueError for ports that are not 1, 2, 3...
    """
    entities = desired_entities(fabric, jobs)
    hosts = len(fabric.ports)
    found: list[Row] = []
    for number, switch in enumerate(fabric.switches):
        ports = sorted(it.number for it in (*fabric.ports_at(switch.name), *fabric.link_ports_at(switch.name)))
        if ports != list(range(1, len(ports) + 1)):
            raise ValueError(f"ports of switch {switch.name!r} must be numbered 1 to {len(ports)} here")
        found.append({"switch": hosts + number} | policy(entities[switch.name]))
    return found


def policy(entities: Iterable[Entity]) -> Row:
    """That of one switch, but for its number."""
    tables: dict[str, list[P4TableEntry]] = {}
    meters: dict[str, dict[int, P4MeterConfig]] = {"virtual_queue": {}, "control_rates": {}}
    groups: dict[int, list[int]] = {}
    for it in entities:
        if isinstance(it, P4TableEntry):
            tables.setdefault(it.table_id, []).append(it)
        elif isinstance(it, P4MulticastGroupEntry):
            groups[it.multicast_group_id] = [_replica(port) for port in it.replicas]
        elif isinstance(it, P4MeterEntry) and it.meter_id in meters and it.index is not None and it.config is not None:
            meters[it.meter_id][it.index] = it.config
    queues = meters["virtual_queue"]
    policies_of_ports = {_key(it, "egress_port"): _arguments(it) for it in tables.get("port_policies", ())}
    shares = [["nothing", "nothing"], ["nothing", "nothing"]]
    for it in tables.get("budget_shares", ()):
        shares[_key(it, "from_fabric")][_key(it, "to_fabric")] = _action(it).name
    of_index = {_arguments(it)["job_index"]: _key(it, "job") for it in tables.get("jobs", ())}
    return {
        "jobs": _jobs(tables),
        "ports": [
            _port(port, policies_of_ports.get(port, NO_POLICY), queues.get(port))
            for port in sorted({*policies_of_ports, *queues})
        ],
        "budget_shares": shares,
        "job_shares": [
            {
                "job": of_index[_key(it, "job_index")],
                "port": _key(it, "egress_port"),
                "excess_class": _arguments(it)["queue_class_of_excess"],
                **_meter(it.meter_config),
            }
            for it in tables.get("job_shares", ())
            if it.meter_config is not None and _key(it, "job_index") in of_index
        ],
        "control_rates": [{"port": port, **_meter(it)} for port, it in meters["control_rates"].items()],
        "dscp_classes": [[_key(it, "dscp"), _arguments(it)["queue_class"]] for it in tables.get("dscp_classes", ())],
        "sums": _sums(tables, groups),
    }


def chosen_bits(entities: Iterable[Entity]) -> dict[int, int]:
    """By the port of a switch, what a link's "chosen_bits" has at that end."""
    return {
        _key(it, "ingress_port"): _arguments(it)["chosen_bits"]
        for it in entities
        if isinstance(it, P4TableEntry) and it.table_id == "ports" and _action(it).name == "fabric"
    }


def _jobs(tables: Mapping[str, list[P4TableEntry]]) -> list[Row]:
    classes: dict[int, list[list[int]]] = {}
    precedences: dict[int, list[list[int]]] = {}
    for it in tables.get("queue_classes", ()):
        row = [*_range(it, "layer", EVERY_LAYER), *EVERY_MAGNITUDE, _arguments(it)["queue_class"]]
        classes.setdefault(_key(it, "job"), []).append(row)
    for it in tables.get("drop_precedences", ()):
        ranges = *_range(it, "layer", EVERY_LAYER), *_range(it, "magnitude", EVERY_MAGNITUDE)
        precedences.setdefault(_key(it, "job"), []).append([*ranges, _arguments(it)["drop_precedence"]])
    found: list[Row] = []
    for it in tables.get("jobs", ()):
        job, told = _key(it, "job"), _arguments(it)
        found.append(
            {
                "id": job,
                "slots": [told["slot_base"], told["slot_mask"]],
                "max_share": told["max_share"],
                "trim": bool(told["trim"]),
                "spray": bool(told["spray"]),
                "classes": classes.pop(job, []),
                "precedences": precedences.pop(job, []),
            }
        )
    # Of a job that the switch does not know, slices have their tags, and no budget.
    unknown = {"slots": [0, 0], "max_share": 0, "trim": False, "spray": False}
    for job in sorted({*classes, *precedences}):
        found.append({"id": job, **unknown, "classes": classes.get(job, []), "precedences": precedences.get(job, [])})
    return found


def _sums(tables: Mapping[str, list[P4TableEntry]], groups: Mapping[int, list[int]]) -> Row:
    """Who adds to what, in which slots, and where sums go. What has been summed before has another epoch."""
    trees: list[Row] = []
    for it in tables.get("sum_trees", ()):
        told = _arguments(it)
        tree = {"job": _key(it, "job"), "bucket": _key(it, "bucket"), "group": groups[told["group"]]}
        tree |= {name: told[name] for name in ("all", "here", "up", "epoch")}
        trees.append(tree | {"slots": [told["slot_base"], told["slot_mask"]], "address": _ipv4(told["address"])})
    contributors = [
        [_key(it, "ingress_port"), _ipv4((it.match or {})["source"]), _key(it, "job"), _arguments(it)["member"]]
        for it in tables.get("contributors", ())
    ]
    subtrees: list[list[int]] = []
    for it in tables.get("subtrees", ()):
        told = _arguments(it)
        bits = [told["bits"], told["workers"]] if _action(it).name == "stand_for" else [told["workers"], 0]
        subtrees.append([_key(it, "ingress_port"), _key(it, "job"), *bits])
    return {"trees": trees, "contributors": contributors, "subtrees": subtrees}


def _ipv4(mapped: Any) -> int:
    """Of an address that is mapped into IPv6."""
    return int(IPv6Address(mapped)) & 0xFFFFFFFF


def _replica(replica: Any) -> int:
    """Its port; the program has one of each."""
    return replica if isinstance(replica, int) else replica[0]


def _port(port: int, told: Mapping[str, int], queue: P4MeterConfig | None) -> Row:
    found: Row = {"port": port, "metered_from": told["lowest_metered_class"], "yellow": told["yellow"]}
    found |= {"red": told["red"], "to_fabric": bool(told["to_fabric"])}
    return found if queue is None else found | _meter(queue)


def _meter(config: P4MeterConfig) -> Row:
    """Meters of the program have CIR = PIR, in bytes/s."""
    if config.cir != config.pir:
        raise ValueError(
            f"a meter has CIR {config.cir} and PIR {config.pir}; the simulator has those where they are equal"
        )
    return {"rate": 8 * config.cir, "thresholds": [config.cburst, config.pburst]}


def _action(it: P4TableEntry) -> P4TableAction:
    if not isinstance(it.action, P4TableAction):
        raise TypeError(f"an entry of {it.table_id} has no action")
    return it.action


def _arguments(it: P4TableEntry) -> dict[str, Any]:
    return dict(_action(it).args)


def _key(it: P4TableEntry, name: str) -> int:
    return int((it.match or {})[name])


def _range(it: P4TableEntry, name: str, every: tuple[int, int]) -> tuple[int, int]:
    """P4Runtime leaves a range of everything out."""
    return (it.match or {}).get(name, every)
