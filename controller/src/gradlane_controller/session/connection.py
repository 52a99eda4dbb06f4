# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime session with a switch: opened, watched, and opened again when it is lost."""

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from finsy import GRPCCredentialsTLS, GRPCStatusCode, P4ClientError, Switch, SwitchEvent, SwitchOptions
from finsy.p4entity import P4Entity
from finsy.proto import p4r

from gradlane import GradlaneError, pem
from gradlane_controller.desired.pipeline import Pipeline
from gradlane_controller.errors import NotLeadingError, SwitchError, SwitchLostError
from gradlane_controller.network.fabric import SwitchAddress
from gradlane_controller.network.tls import Tls
from gradlane_controller.session.arbitration import Arbitration
from gradlane_controller.session.bounds import bound, client_of, requests
from gradlane_controller.session.patience import any_done

START_SECONDS = 5.0  # how long the switch may take to appear when the controller starts
ATTEMPT_SECONDS = 4.0  # how long it may take to answer one attempt
PROGRAM_SECONDS = 60.0  # how long a switch that answers may take to load the program, which it may have to compile
OPERATION_SECONDS = 20.0  # how long it may take for all requests of one operation
RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 8.0  # for a switch that answers, and fails again and again
STEADY_SECONDS = 10.0
HEARTBEAT_SECONDS = 2.0
SILENT_SECONDS = 4.0  # after which a switch may hang that has not answered what was written to it
_DECODED_AT_ONCE = 128  # entities; each takes some 50 us
_MAX_REASON = 1000  # characters
_DISTRUSTED = "CERTIFICATE_VERIFY_FAILED: "

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_Entity = TypeVar("_Entity", bound=P4Entity)


class FinsyLog(logging.Handler):
    """finsy says only in its log why a task of a switch failed. This keeps the reason; details go to our debug log."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[str, BaseException] = {}
        finsy_logger = logging.getLogger("finsy")
        finsy_logger.handlers = [self]
        finsy_logger.setLevel(logging.INFO)
        finsy_logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and isinstance(record.args, tuple) and record.args:
            # finsy's argument is the name of the task, "fy:SWITCH|WHAT".
            switch = str(record.args[0]).removeprefix("fy:").partition("|")[0]
            self._failures[switch] = record.exc_info[1]
        _LOG.debug("%s", record.getMessage())

    def failure(self, switch: str) -> BaseException | None:
        """Why a task of that switch failed."""
        return self._failures.get(switch)

    def forget(self, switch: str) -> None:
        """Before a new session."""
        self._failures.pop(switch, None)


class Connection:
    """Keeps a session with one switch.

    `on_ready` runs at each new session and each time this controller becomes the primary one, with the pipeline in
    place if it is primary; when it fails with P4ClientError the session is reopened. `on_heartbeat` then runs every two
    seconds; it is to ask the switch something. `on_lost` hears why a session ended, and whether the switch closed it;
    `on_late` why there still is none
    after the time that a switch may take, or that the switch has refused the program or its first state. `number` and
    `on_outbid` are those of `Arbitration`.
    """

    def __init__(
        self,
        where: SwitchAddress,
        pipeline: Pipeline,
        on_ready: Callable[[Switch], Awaitable[None]],
        on_heartbeat: Callable[[Switch], Awaitable[None]],
        on_lost: Callable[[str, bool], None],
        on_late: Callable[[str], None],
        number: Callable[[], int | None],
        on_outbid: Callable[[int], None],
        finsy_log: FinsyLog,
    ) -> None:
        self._where = where
        self._options = SwitchOptions(
            p4info=cast(Any, pipeline.schema.p4info),  # read once
            p4blob=pipeline.program,
            device_id=where.device_id,
            channel_credentials=where.tls and _credentials(where.tls),
            ready_handler=self._ready,
        )
        self._on_ready = on_ready
        self._on_heartbeat = on_heartbeat
        self._on_lost = on_lost
        self._on_late = on_late
        self._number, self._on_outbid = number, on_outbid
        self._switch: Switch | None = None
        self._opened: tuple[Switch, Arbitration] | None = None
        self._lost = asyncio.Event()
        self._stepped_down = asyncio.Event()  # another one each time
        self._was_ready = False
        self._settled = False  # this session has its pipeline, or stands by: requests are answered at once
        self._failure: BaseException | None = None
        self._finsy_log = finsy_log

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        return self._switch is not None

    @property
    def primary(self) -> bool:
        """Whether this controller may write to the switch."""
        return self._switch is not None and self._switch.is_primary

    @property
    def primary_id(self) -> int | None:
        """The election id of who may."""
        return None if self._switch is None or self._switch.primary_id < 0 else self._switch.primary_id

    @property
    def other(self) -> int | None:
        """The fencing number of another client that is primary at the switch, with a greater one than this has."""
        return self._opened[1].other if self._switch is not None and self._opened is not None else None

    @property
    def silent(self) -> bool:
        """Whether the switch has not answered for long what was written to it."""
        return self._switch is not None and client_of(self._switch).silent_seconds > SILENT_SECONDS

    def step_down(self) -> None:
        """Writes nothing more; see `bid`."""
        stepped_down, self._stepped_down = self._stepped_down, asyncio.Event()
        stepped_down.set()
        if self._opened is not None:
            switch, arbitration = self._opened
            arbitration.step_down(switch)

    async def bid(self) -> None:
        """Tells the switch whether this controller leads now. A switch that does not take it loses its session."""
        if self._switch is not None and self._opened is not None:
            try:
                await self.execute(self._opened[1].bid)
            except SwitchError as problem:
                self.renew(str(problem))

    def renew(self, reason: str) -> None:
        """Ends the session for that reason; a new one follows."""
        self._fail(SwitchError(reason.removeprefix(f"{self.name}: ")))

    async def run(self) -> None:
        """Keeps the session until cancelled."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        late = False
        pause = RETRY_SECONDS
        while True:
            opened = loop.time()
            left = max(begin + START_SECONDS - opened, 1.0)
            first = not (self._was_ready or late)
            answered = await self._run_session(min(ATTEMPT_SECONDS, left) if first else ATTEMPT_SECONDS)
            failure = self._failure or self._finsy_log.failure(self._where.name)
            reason = f"{self.name}: {self._why_lost()}"
            patience = PROGRAM_SECONDS if answered else START_SECONDS
            if (
                first
                and not self._was_ready
                and (_is_refusal(failure) or loop.time() + RETRY_SECONDS >= begin + patience)
            ):
                late = True
                self._on_late(reason)
            self._on_lost(reason, not isinstance(self._failure, SwitchError))
            steady = not answered or loop.time() - opened > STEADY_SECONDS
            pause = RETRY_SECONDS if steady else min(2 * pause, MAX_RETRY_SECONDS)
            await asyncio.sleep(pause)

    async def execute(self, operation: Callable[[Switch], Coroutine[Any, Any, _T]], *, leading: bool = False) -> _T:
        """Runs an operation on the session. Raises SwitchError if there is none, it ends meanwhile or it is refused;
        NotLeadingError as soon as this controller does not lead any more, if it is an operation of who is `leading`."""
        switch, lost, stepped_down = self._switch, self._lost, self._stepped_down
        if switch is None or lost.is_set():
            raise SwitchLostError(f"{self.name} is not connected")
        task = asyncio.create_task(operation(switch))
        watches = [asyncio.create_task(it.wait()) for it in (lost, *([stepped_down] if leading else []))]
        try:
            if not await any_done(OPERATION_SECONDS, task, *watches):
                self._fail(SwitchError(f"did not do in {OPERATION_SECONDS:g} s what it was asked"))
            if leading and stepped_down.is_set() and not task.done():
                raise NotLeadingError("this controller does not lead any more, so it writes nothing")
            if not task.done() or task.cancelled():
                raise SwitchLostError(f"{self.name} was lost meanwhile: {self._why_lost()}")
            problem = task.exception()
            if isinstance(problem, P4ClientError) and problem.code == GRPCStatusCode.DEADLINE_EXCEEDED:
                self._fail(problem)
            if lost.is_set() and problem is not None and not isinstance(problem, SwitchError):
                raise SwitchLostError(f"{self.name} was lost meanwhile: {self._why_lost()}")
            # Whatever fails, with a switch that may answer anything, is that switch's failure.
            if problem is not None:
                raise SwitchError(f"{self.name}: {describe(problem, self._where.tls)}")
            return task.result()
        finally:
            for each in (task, *watches):
                each.cancel()
            await asyncio.gather(task, *watches, return_exceptions=True)

    @property
    def name(self) -> str:
        """The switch's name and address, for people."""
        return f"switch {self._where.name!r} at {self._where.address}"

    def _why_lost(self) -> str:
        failure = self._failure or self._finsy_log.failure(self._where.name)
        return describe(failure, self._where.tls) if failure else "the connection was closed"

    async def _run_session(self, answer_seconds: float) -> bool:
        """One session from the first try to the end; whether the switch answered."""
        self._failure = None
        self._settled = False
        self._finsy_log.forget(self._where.name)
        self._lost = asyncio.Event()
        answered = asyncio.Event()
        # A task of its own, because finsy cancels the task that opens a session if that fails half-way.
        session = asyncio.create_task(self._session(answered))
        waiter = asyncio.create_task(answered.wait())
        try:
            if not await any_done(answer_seconds, session, waiter):
                self._fail(SwitchError(f"no answer in {answer_seconds:.1f} s"))
                session.cancel()
            await asyncio.wait((session,))
            if not session.cancelled() and session.exception() is not None:
                self._fail(session.exception())
        finally:
            self._lost.set()
            self._switch = self._opened = None
            for task in (session, waiter):
                task.cancel()
            await asyncio.gather(session, waiter, return_exceptions=True)
        return answered.is_set()

    async def _session(self, answered: asyncio.Event) -> None:
        lost = self._lost
        if self._where.tls is not None:  # the files are read for each session, as certificates are renewed
            pem.check(self._where.tls.ca, self._where.tls.certificate, self._where.tls.key)
        switch = Switch(self._where.name, self._where.address, self._options)
        arbitration = Arbitration(self._number, self._on_outbid)
        bound(switch, arbitration)
        self._opened = switch, arbitration

        def opened(_switch: Switch) -> None:
            answered.set()

        def closed(_switch: Switch) -> None:
            lost.set()

        def chosen(_switch: Switch) -> None:
            self._settled = False  # it may have to load the program first

        switch.ee.on(SwitchEvent.CHANNEL_UP, opened)
        switch.ee.on(SwitchEvent.CHANNEL_DOWN, closed)
        switch.ee.on(SwitchEvent.BECOME_PRIMARY, chosen)
        async with switch:
            while not lost.is_set():
                try:
                    await asyncio.wait_for(lost.wait(), HEARTBEAT_SECONDS)
                except asyncio.TimeoutError:
                    if self._settled:
                        await self._heartbeat(switch)

    async def _heartbeat(self, switch: Switch) -> None:
        """A switch that hangs or vanishes does not close the connection; only an unanswered request shows it."""
        answer = asyncio.ensure_future(self._on_heartbeat(switch))
        try:
            if await any_done(ATTEMPT_SECONDS, answer):
                return await answer
            self._fail(SwitchError(f"no answer in {ATTEMPT_SECONDS:g} s"))
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

    async def _ready(self, switch: Switch) -> None:
        """finsy's ready handler. Ends the session by the event, as an exception here would only reach finsy's log."""
        self._switch = switch
        self._settled = True
        try:
            if self._opened is not None:
                await self._opened[1].bid(switch)  # whether this one leads may have changed meanwhile
            await self._on_ready(switch)
            self._was_ready = True
        except (P4ClientError, SwitchError) as problem:
            self._fail(problem)

    def _fail(self, problem: BaseException | None) -> None:
        """Ends the session. Its first problem is the reason: what follows is mostly a consequence."""
        self._failure = self._failure or problem
        self._lost.set()


def _is_refusal(problem: BaseException | None) -> bool:
    """Whether the switch said no, so that asking again would not help."""
    silent = (GRPCStatusCode.UNAVAILABLE, GRPCStatusCode.DEADLINE_EXCEEDED, GRPCStatusCode.CANCELLED)
    return isinstance(problem, P4ClientError) and problem.code not in silent


async def read_messages(switch: Switch, *like: P4Entity) -> list[p4r.Entity]:
    """As `read_all`, not decoded: that takes some 50 us of each."""
    request = p4r.ReadRequest(device_id=switch.device_id, entities=[it.encode(switch.p4info) for it in like])
    found: list[p4r.Entity] = []
    async for reply in requests(switch, request):
        found += reply.entities
    return found


async def read_all(switch: Switch, like: _Entity | Sequence[_Entity]) -> list[_Entity]:
    """Every entity of the kind of `like`, or of each of several. Raises finsy.P4ClientError or SwitchError."""
    found: list[_Entity] = []
    async for entity in cast(AsyncIterable[_Entity], switch.read(like)):
        found.append(entity)
        if len(found) % _DECODED_AT_ONCE == 0:
            await asyncio.sleep(0)  # others' turn
    return found


def describe(problem: BaseException, tls: Tls | None = None) -> str:
    """One line about a failure with a switch that is spoken to in this way."""
    if isinstance(problem, GradlaneError | OSError):
        return plain(str(problem))
    if not isinstance(problem, P4ClientError):  # finsy could not decode it, or we
        return plain(f"sent what can't be understood: {type(problem).__name__}: {problem}")
    if problem.code == GRPCStatusCode.UNAVAILABLE:
        return _describe_unavailable(problem.message, tls)
    if problem.code == GRPCStatusCode.DEADLINE_EXCEEDED:
        return "does not answer"
    details = "; ".join(f"{error.canonical_code.name}: {error.message}" for error in problem.details.values())
    return plain(f"refused: {problem.code.name}: {details or problem.message}")


def plain(text: str) -> str:
    """One printable line of what a switch may have written."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}..."


def _describe_unavailable(message: str, tls: Tls | None) -> str:
    """gRPC says what failed before there was a session in its message alone."""
    if "Hostname Verification" in message:
        return "shows a certificate for another name; `server_name` of its [tls] must be one of the certificate's"
    if _DISTRUSTED in message and tls is not None:
        why = message.partition(_DISTRUSTED)[2].removesuffix(": OK")
        return f"shows a certificate that does not follow from {tls.ca}: {why}"
    if "WRONG_VERSION_NUMBER" in message:
        return "speaks no TLS, and the fabric file has [tls] for it"
    if message.startswith("failed to connect") and message.endswith("Socket closed"):
        if tls is None:
            return "closes the connection; if it speaks TLS, the fabric file needs [tls] for it"
        cause = "it may not trust the certificate" if tls.certificate else "it may want a certificate, and none is"
        return f"closes the connection when TLS begins; {cause} in its [tls]"
    return "can't be reached"


def _credentials(tls: Tls) -> GRPCCredentialsTLS:
    return GRPCCredentialsTLS(
        cacert=tls.ca, cert=tls.certificate, private_key=tls.key, target_name_override=tls.server_name
    )
