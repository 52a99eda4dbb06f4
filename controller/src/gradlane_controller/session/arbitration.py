# SPDX-License-Identifier: Apache-2.0
"""What this controller bids at a switch (P4Runtime specification, chapter 5), and whether it may write there.

The leader's election id is LEADERS plus its fencing number. Those who stand by bid less than any leader, each its own:
a switch refuses what another stream has, and BMv2 takes none for 0. BMv2 also makes the next one primary when the
leader's stream ends, and a switch whom it sees first: so who is primary there may write only if it leads.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from finsy import Switch
from finsy.grpcutil import GRPCStatusCode
from finsy.p4arbitrator import Arbitrator
from finsy.p4client import P4RpcStatus
from finsy.proto import U128, p4r

from gradlane_controller.errors import SwitchError
from gradlane_controller.session.patience import any_done

LEADERS = 1_000_000_000
MOST = (1 << 63) - 1  # that the store can have, as LEADERS plus a number
ANSWER_SECONDS = 3.0  # that a switch may take to say who is primary now
_TRIES = 5


class Arbitration(Arbitrator):
    """In place of finsy's, which bids against others as it likes.

    `number` is the fencing number while this controller leads. `on_outbid` hears of an id that a switch has seen and
    that nobody has now, or that it took for ours: the next one has to be greater.
    """

    def __init__(self, number: Callable[[], int | None], on_outbid: Callable[[int], None]) -> None:
        super().__init__(_low())
        self._number, self._on_outbid = number, on_outbid
        self.other: int | None = None  # the number of another client that is primary, and whose id is greater
        self.sending = asyncio.Lock()  # a write and a bid: a write has the id that the switch knows
        self._told = asyncio.Event()

    @property
    def may_write(self) -> bool:
        """Whether this controller leads, by the number with which it is primary here."""
        number = self._number()
        return number is not None and self.is_primary and self.election_id == LEADERS + number

    async def handshake(self, switch: Switch, *, conflict: bool = False) -> None:
        """The first bid of a session. Raises SwitchError if the switch has the id already."""
        if conflict:  # of a later bid of this session, by which the stream has ended
            self.step_down(switch)
            self._refused()
        for _ in range(_TRIES):
            self.election_id = self._bid()
            await self._send(switch)
            response = await self._receive(switch)
            if response is not None:
                self._take(response)
                if conflict and self.is_primary:
                    switch._become_primary()  # pyright: ignore[reportPrivateUsage]
                return
            self._refused()
        raise SwitchError("says that another client has the election id that this controller bids")

    async def update(self, switch: Switch, msg: p4r.MasterArbitrationUpdate) -> None:
        """The switch says who is primary."""
        before = self.is_primary
        self._take(msg)
        if self.is_primary != before:
            (switch._become_primary if self.is_primary else switch._become_backup)()  # pyright: ignore[reportPrivateUsage]

    def step_down(self, switch: Switch) -> None:
        """Nothing is written from now on, whatever the switch thinks."""
        if self.is_primary:
            self.is_primary = False
            switch._become_backup()  # pyright: ignore[reportPrivateUsage]

    async def bid(self, switch: Switch) -> None:
        """Bids what is due now, if that is something else. Raises SwitchError or finsy.P4ClientError."""
        async with self.sending:
            wanted = self._bid()
            if wanted == self.election_id:
                return
            self.election_id = wanted
            self._told.clear()
            await self._send(switch)
            told = asyncio.ensure_future(self._told.wait())
            try:
                if not await any_done(ANSWER_SECONDS, told):
                    raise SwitchError(f"does not say in {ANSWER_SECONDS:g} s who is primary")
            finally:
                told.cancel()

    def reset(self) -> None:
        """The stream has ended."""
        super().reset()
        self.other = None

    def _bid(self) -> int:
        number = self._number()
        if number is not None:
            return min(LEADERS + number, MOST)
        return self.election_id if self.election_id < LEADERS else _low()

    def _take(self, response: Any) -> None:
        code = P4RpcStatus.from_status(response.status).code
        self.primary_id = U128.decode(response.election_id)
        if self.primary_id < self.election_id:
            return  # it has not read our bid yet
        ours = self.primary_id == self.election_id
        leads = self._number() is not None and self.election_id >= LEADERS
        self.is_primary = leads and ours and code == GRPCStatusCode.OK
        taken = not ours and (code == GRPCStatusCode.ALREADY_EXISTS or self.primary_id >= MOST)
        self.other = self.primary_id - LEADERS if taken else None
        if leads and not ours and not taken:
            self._on_outbid(self.primary_id - LEADERS + 1)
        self._told.set()

    def _refused(self) -> None:
        """Another stream has this id: our own of before, which the switch has not given up yet, or another one's."""
        if self.election_id >= LEADERS:
            self._on_outbid(self.election_id - LEADERS + 1)
        self.election_id = _low()


def _low() -> int:
    return random.randrange(1, LEADERS)
