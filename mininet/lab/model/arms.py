# SPDX-License-Identifier: Apache-2.0
"""The arms of the experiment: each synchronises gradients by its own means, with everything else equal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gradlane.units import parse_size

Kind = Literal["gloo", "ps", "gradlane"]
Wire = Literal["float32", "float16"]

EXPEDITED_FORWARDING = 46  # DSCP of RFC 3246


@dataclass(frozen=True)
class Arm:
    """One arm.

    kind: `gloo` (ring all-reduce of torch.distributed), `ps` (parameter server over TCP), `gradlane`.
    wire: the type of a gradient element from host to host. For `gradlane` the runner writes it into the job file.
    servers: whether the arm needs parameter-server hosts.
    dscp: DSCP of the workers' TCP sockets, 0-63.
    overlap: training without the barrier at the end of the backward pass; only for `gradlane`.
    job: what the arm changes in the job file, by TOML section; only for `gradlane`. With a section `sync` the workers
    train by that scheme of gradlane.sync: they average parameters after local steps, not gradients.
    bucket_bytes: size of a DDP bucket: the best of those measured for this kind of arm.
    congestion_control: of the arm's TCP sockets, a name that the kernel knows; the best of those measured.
    min_rto_ms: lower bound of the retransmission timeout of the arm's TCP sockets; 0 for the kernel's own, 200 ms.
    """

    name: str
    kind: Kind
    summary: str
    wire: Wire = "float32"
    servers: bool = False
    dscp: int = 0
    overlap: bool = False
    job: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    bucket_bytes: int = parse_size("256KiB")
    congestion_control: str = "cubic"
    min_rto_ms: int = 0

    @property
    def by_scheme(self) -> bool:
        """Whether it averages parameters by a scheme, not gradients."""
        return "sync" in self.job

    @property
    def by_switch(self) -> bool:
        """Whether a switch sums the gradients."""
        return self.job.get("transport", {}).get("collective") == "switch"


# The tolerance of DLCP's own evaluation (arXiv 2008.08445). What is lost is made up for in the next step.
_EVALUATION_LOSS = {"loss": {"push": 0.1, "pull": 0.0}}
_HOST_TAGGING = {"transport": {"tagging": "host"}}


def _by_switch(wire: str, push: float = 0.0) -> Mapping[str, Mapping[str, Any]]:
    """No other job is there, so it has all slots."""
    transport = {"collective": "switch", "wire": wire, "sum_slots": 4096}
    return {"transport": transport, "loss": {"push": push, "pull": 0.0}}


ARMS: Mapping[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm(
            "ddp-gloo",
            "gloo",
            "stock DistributedDataParallel: Gloo's ring all-reduce over TCP",
            bucket_bytes=parse_size("1MiB"),
        ),
        Arm(
            "ddp-gloo-fp16",
            "gloo",
            "the same with PyTorch's fp16_compress_hook",
            wire="float16",
            bucket_bytes=parse_size("1MiB"),
        ),
        Arm(
            "ddp-gloo-prio",
            "gloo",
            "float16, and every TCP packet in a class above best effort (DSCP EF)",
            wire="float16",
            dscp=EXPEDITED_FORWARDING,
            bucket_bytes=parse_size("1MiB"),
        ),
        Arm(
            "ddp-gloo-tuned",
            "gloo",
            "float16, and TCP's least retransmission timeout at 20 ms instead of 200 (needs Linux 6.15)",
            wire="float16",
            min_rto_ms=20,
            bucket_bytes=parse_size("1MiB"),
        ),
        Arm(
            "ps-tcp",
            "ps",
            "sharded parameter server over TCP, pipelined in chunks",
            servers=True,
            bucket_bytes=parse_size("256KiB"),
        ),
        Arm(
            "ps-tcp-tuned",
            "ps",
            "the same with TCP's least retransmission timeout at 20 ms instead of 200 (needs Linux 6.15)",
            servers=True,
            bucket_bytes=parse_size("256KiB"),
            min_rto_ms=20,
        ),
        Arm(
            "ps-tcp-fp16",
            "ps",
            "the same with float16 on the wire",
            wire="float16",
            servers=True,
            bucket_bytes=parse_size("256KiB"),
        ),
        Arm(
            "gradlane",
            "gradlane",
            "direct sharded all-reduce: priorities, selective dropping, bounded loss, float16 on the wire",
            wire="float16",
        ),
        Arm("gradlane-fp32", "gradlane", "the same with float32 on the wire"),
        Arm(
            "gradlane-host",
            "gradlane",
            "as gradlane, with DSCP and ECN written by the hosts: for switches without P4",
            wire="float16",
            job=_HOST_TAGGING,
        ),
        Arm(
            "gradlane-ps",
            "gradlane",
            "aggregated by parameter servers, float32 as ps-tcp, 10 % of the pushes may be lost",
            servers=True,
            job=_EVALUATION_LOSS,
        ),
        Arm(
            "gradlane-ps-host",
            "gradlane",
            "as gradlane-ps, with DSCP and ECN written by the hosts: for switches without P4",
            servers=True,
            job={**_EVALUATION_LOSS, **_HOST_TAGGING},
        ),
        Arm(
            "gradlane-ps-fp16",
            "gradlane",
            "as gradlane-ps, with float16 on the wire",
            wire="float16",
            servers=True,
            job=_EVALUATION_LOSS,
        ),
        Arm(
            "gradlane-switch-sum",
            "gradlane",
            "summed by the switch in 16-bit fixed point, nothing is lost: a port carries one gradient, not one of each",
            job=_by_switch("int16"),
        ),
        Arm(
            "gradlane-switch-sum-int32",
            "gradlane",
            "the same in 32-bit fixed point",
            job=_by_switch("int32"),
        ),
        Arm(
            "gradlane-switch-sum-lossy",
            "gradlane",
            "as gradlane-switch-sum, 3 % of each worker's slices may be missing in the sums, and are added to the next",
            job=_by_switch("int16", push=0.03),
        ),
        Arm(
            "gradlane-ecmp",
            "gradlane",
            "ablation: a flow keeps to one path by its hash (ECMP) instead of being sprayed over all",
            wire="float16",
            job={"policy": {"spray": False}},
        ),
        Arm(
            "gradlane-overlap",
            "gradlane",
            "as gradlane, each layer's next forward pass waits for its own gradient alone",
            wire="float16",
            overlap=True,
        ),
        Arm(
            "no-drop",
            "gradlane",
            "ablation: the switch drops nothing selectively, the loss budget stays",
            wire="float16",
            job={"policy": {"drop_precedences": []}},
        ),
        Arm(
            "no-priority",
            "gradlane",
            "ablation: every gradient packet is best effort",
            wire="float16",
            job={"policy": {"priority": False}},
        ),
        Arm(
            "lossless",
            "gradlane",
            "ablation: no loss tolerated, so the result is the exact mean",
            wire="float16",
            job={"loss": {"push": 0.0, "pull": 0.0}},
        ),
        Arm(
            "gradlane-adaptive",
            "gradlane",
            "as gradlane, and a worker that is always late reduces nothing",
            wire="float16",
            job={"transport": {"ownership": "adaptive"}},
        ),
        Arm(
            "ripples",
            "gradlane",
            "no global step: float32 parameters averaged by pairs that are decided on the way",
            job={"sync": {"scheme": "ripples", "members": 2}},
        ),
        Arm(
            "ds-sync",
            "gradlane",
            "float32 parameters averaged by groups that change in each step; equally many steps for all",
            job={"sync": {"scheme": "ds-sync"}},
        ),
        Arm(
            "local-sgd",
            "gradlane",
            "float16 changes of the parameters, averaged by all after 8 local steps",
            wire="float16",
            job={"sync": {"scheme": "local-sgd"}},
        ),
    )
}
