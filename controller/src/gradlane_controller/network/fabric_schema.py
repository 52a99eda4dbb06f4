# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of fabric files, of the limits that `fabric_file` checks."""

from gradlane import toml_schema as it
from gradlane.toml_schema import Schema
from gradlane.wire import CONTROL_CLASS
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import CPU_PORT, MAX_PORT


def fabric_schema() -> Schema:
    """Of the whole file; docs/files.md explains the keys."""
    return it.document(
        "Gradlane fabric file",
        {
            "switch": it.tables(_switch(), least=1),
            "tls": _tls("TLS to all switches", ("ca",)),
            "thresholds": _thresholds(),
            "port": it.tables(_port(), least=1),
            "link": it.tables(_link()),
            "dscp": it.tables(_dscp()),
            "rewrite": it.tables(_rewrite()),
            "adaptive": _adaptive(),
        },
        ("switch", "port"),
    )


def _switch() -> Schema:
    keys = {
        "name": it.name("Its name in this file"),
        "index": it.integer_or(
            "Its number on the wire; auto: what it had, else the place in this file",
            "auto",
            1,
            fabric_file.MAX_SWITCHES,
        ),
        "device_id": it.integer("Of P4Runtime; default: its index", 1, 2**64 - 1),
        "address": it.string("HOST:PORT of P4Runtime", fabric_file.ENDPOINT),
        "target": it.choice("The kind of switch", fabric_file.TARGETS, "gradlane-switch"),
        "pipes": it.integer("How often it has each register and meter", 1, fabric_file.MAX_PIPES, 1),
        "aggregation": it.boolean("It gets the program that sums gradients, too", False),
        "tls": _tls("Keys that replace those of [tls] for this switch"),
    }
    return it.table("A switch", keys, ("name", "address"))


def _tls(text: str, required: tuple[str, ...] = ()) -> Schema:
    keys = {
        "ca": it.path("PEM file: whom the switches' certificates must come from"),
        "certificate": it.path("PEM file: what the controller shows, with its key"),
        "key": it.path("PEM file: the key of the certificate"),
        "server_name": it.string("The name in the certificates; default: the host of the address"),
    }
    return it.table(text, keys, required)


def _thresholds() -> Schema:
    keys = {"yellow": it.fraction("Of the buffer"), "red": it.fraction("Of the buffer, at least yellow")}
    return it.table("From which part of its buffer on a port is congested", keys, ("yellow", "red"))


def _adaptive() -> Schema:
    keys = {
        "interval": it.number(
            "s from one change of a job to the next, at least", *fabric_file.INTERVAL, fabric_file.DEFAULT_INTERVAL
        ),
        "least_threshold": it.fraction("Of a port's buffer, from which on it may be congested"),
        "most_threshold": it.fraction("Of a port's buffer, from which on it must be; with least_threshold"),
        "droppable": it.fraction("Of a message, by magnitude, what stays droppable at least"),
        "tolerance": it.fraction("Of a job's own tolerance, what it keeps at least; above 0"),
    }
    return it.table("Jobs are tuned by what is seen of them, within these bounds", keys)


def _port() -> Schema:
    mac = "[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}"
    addresses = {"type": "array", "items": it.any_address(""), "minItems": 1}
    keys = {
        "switch": it.name("May be left out if there is one switch"),
        "number": _number("The port"),
        "host": it.name("The host behind it"),
        "mac": it.string("The switch's own address on this port", mac),
        "host_mac": it.string("The host's", mac),
        "address": it.address("Of the host"),
        "prefix": it.string("Its subnet; default: its address alone"),
        "gateway": it.address("The switch's own address there, which answers ARP and ping"),
        "address6": it.address6("Of the host"),
        "prefix6": it.string("Its subnet; default: its address alone"),
        "gateway6": it.address6("The switch's own address there"),
        "also": {"description": "More addresses of the host", "anyOf": [it.any_address(""), addresses]},
        "rate": it.rate("Of the port"),
        "buffer": it.size("Of the port"),
    }
    return it.table("A host", keys, ("number", "host", "mac", "host_mac", "address", "rate", "buffer"))


def _number(text: str) -> Schema:
    below, above = it.integer("", 1, CPU_PORT - 1), it.integer("", CPU_PORT + 1, MAX_PORT)
    return {"description": text, "anyOf": [below, above]}


def _link() -> Schema:
    end = it.string("SWITCH:PORT", fabric_file.LINK_END)
    keys = {
        "ends": {"type": "array", "items": end, "minItems": 2, "maxItems": 2},
        "rate": it.rate("Of the link"),
        "buffer": it.size("Of the port at either end"),
    }
    return it.table("Between two switches", keys, ("ends", "rate", "buffer"))


def _dscp() -> Schema:
    keys = {
        "dscp": it.integer("Of ordinary traffic", 0, 63),
        "queue_class": it.integer("Which it gets", 0, CONTROL_CLASS - 1),
    }
    return it.table("A queue class for ordinary traffic", keys, ("dscp", "queue_class"))


def _rewrite() -> Schema:
    keys = {
        "switch": it.name("May be left out if there is one switch"),
        "port": _number("By which it leaves"),
        "dscp": it.integer("What it has", 0, 63),
        "to": it.integer("What it gets", 0, 63),
    }
    return it.table("What leaves by a port with this DSCP gets another one", keys, ("port", "dscp", "to"))
