# SPDX-License-Identifier: Apache-2.0
"""The laboratory's network with an ordinary switch in it, which an operator configured once, without the controller."""

from pathlib import Path
from typing import Any

from finsy import P4ClientError

from bench.training import commodity_switch
from bench.training.commodity_switch import Port
from lab.model.errors import ControlError
from lab.model.plan import DSCP_CLASSES, FabricPlan
from lab.model.preconditions import RUN_DIRECTORY
from lab.net.control import Controller, ask_switch
from lab.net.network import Network

_MULTICAST = "239.1.0.0/24"  # the jobs' groups


class Operator(Controller):
    """In the controller's place: configures the switch once, and knows of no job."""

    def __init__(self, plan: FabricPlan, address: str, admin: Path) -> None:
        super().__init__(address)
        self._plan, self._p4runtime, self._admin = plan, address, admin

    def configure(self) -> None:
        """Writes the switch's configuration. Raises ControlError."""
        plan = self._plan
        hosts = [
            Port(host.port, host.address, host.mac, host.gateway_mac, plan.rate, plan.buffer) for host in plan.hosts
        ]
        workers = [host.port for host in plan.of_role("worker")]
        queues = dict(DSCP_CLASSES)
        try:
            commodity_switch.configure(self._p4runtime, commodity_switch.entries(hosts, _MULTICAST, workers, queues))
        except (P4ClientError, TimeoutError) as problem:
            raise ControlError(f"the commodity switch can't be configured: {problem}") from None
        for host in plan.hosts:
            mark = round(commodity_switch.YELLOW * plan.buffer)
            ask_switch(self._admin, {"op": "set", "port": host.port, "ecn": f"{mark}B"})

    def put_job(self, document: dict[str, Any]) -> None:
        """Does nothing: the switch knows no job."""

    def delete_job(self, name: str) -> None:
        """Does nothing: the switch knows no job."""

    def counters(self) -> dict[str, Any]:
        """None: the switch decides nothing about gradients."""
        return {"decisions": [], "drop_map": []}

    def early_drops(self) -> int:
        """Packets that WRED has dropped so far."""
        return sum(commodity_switch.early_drops(self._p4runtime).values())


class CommodityNetwork(Network):
    """The same network as for P4, with the operator's configuration instead of the controller's."""

    def __init__(self, plan: FabricPlan, out: Path, *, seed: int = 1, neighbours: bool = True) -> None:
        super().__init__(plan, out, seed=seed, neighbours=neighbours)
        (switch,) = plan.switches
        self.controller = self.operator = Operator(plan, switch.address, RUN_DIRECTORY / f"{switch.name}.sock")

    def start_controller(self) -> None:
        self.operator.configure()
