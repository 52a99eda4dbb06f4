# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server that holds entities and forwards nothing."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as PackedAny


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """What the tests look at: `entities`, the `log` of calls that change something; and what it is told to refuse."""

    def __init__(self) -> None:
        self.entities: dict[bytes, p4r.Entity] = {}
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.log: list[str] = []
        self.writers: list[int] = []  # the election id of each request to change something that was not refused
        self.refused: list[int] = []  # and of those that were
        self.refuse_pipeline = False
        self.load_seconds = 0.0  # that it takes to load a program
        self.refuse: Callable[[p4r.Entity], bool] = lambda _entity: False
        self.counters: dict[tuple[int, int], tuple[int, int]] = {}
        self.read_cells: set[tuple[int, int]] = set()  # of counters, that somebody has asked for
        self.count: Callable[[], None] = lambda: None  # runs before counters are read
        self._streams: dict[int, SimpleQueue[p4r.StreamMessageResponse | None]] = {}
        self._highest_bid = 0
        self._device: int | None = None  # that the first client has asked for
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            with self._lock:
                for stream in self._streams.values():
                    stream.put(None)
            self._server.stop(0).wait()
            self._server = None

    def forget(self) -> None:
        """As after a restart: no program, no entities."""
        self.entities.clear()
        self.config = None
        self._highest_bid = 0

    def StreamChannel(self, requests, context):
        answers: SimpleQueue[p4r.StreamMessageResponse | None] = SimpleQueue()
        with self._lock:
            first = next(requests).arbitration
            self._device = self._device or first.device_id
            self._bid(answers, first.election_id.low, context)
        threading.Thread(target=self._listen, args=(requests, answers, context), daemon=True).start()
        while (answer := answers.get()) is not None:
            yield answer
        with self._lock:
            self._streams = {bid: stream for bid, stream in self._streams.items() if stream is not answers}
            self._tell_all()

    def _listen(self, requests, answers, context) -> None:
        try:
            for request in requests:
                if not request.HasField("arbitration"):
                    continue  # a packet
                with self._lock:
                    self._bid(answers, request.arbitration.election_id.low, context)
        except grpc.RpcError:
            pass  # the client went away
        answers.put(None)

    def _bid(self, answers: SimpleQueue[p4r.StreamMessageResponse | None], bid: int, context) -> None:
        if bid in self._streams:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
        self._streams = {other: stream for other, stream in self._streams.items() if stream is not answers}
        self._streams[bid] = answers
        self._highest_bid = max(self._highest_bid, bid)
        self._tell_all()

    def _tell_all(self) -> None:
        """P4Runtime 5.4: the primary is who made the highest bid ever seen; if it left, there is none."""
        for bid, stream in self._streams.items():
            answer = p4r.StreamMessageResponse()
            answer.arbitration.election_id.low = self._highest_bid
            if bid == self._highest_bid:
                answer.arbitration.status.code = rpc_code.OK
            elif self._highest_bid in self._streams:
                answer.arbitration.status.code = rpc_code.ALREADY_EXISTS
            else:
                answer.arbitration.status.code = rpc_code.NOT_FOUND
            stream.put(answer)

    def put(self, entity: p4r.Entity) -> None:
        """As if another client had written it."""
        self.entities[_key(entity)] = entity

    def Capabilities(self, request, context):
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    def GetForwardingPipelineConfig(self, request, context):
        if self.config is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device.")
        config = p4r.ForwardingPipelineConfig(cookie=self.config.cookie)
        if request.response_type != p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY:
            config.p4info.CopyFrom(self.config.p4info)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    def SetForwardingPipelineConfig(self, request, context):
        if self.refuse_pipeline:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such extern")
        self._check_primary(request, context)
        time.sleep(self.load_seconds)
        self.log.append(p4r.SetForwardingPipelineConfigRequest.Action.Name(request.action))
        self.entities.clear()
        self.config = request.config
        return p4r.SetForwardingPipelineConfigResponse()

    def Write(self, request, context):
        self._check_primary(request, context)
        errors = [self._update(update) for update in request.updates]
        if any(error.canonical_code for error in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN)
            for error in errors:
                packed = PackedAny()
                packed.Pack(error)
                status.details.append(packed)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, "")
        return p4r.WriteResponse()

    def _check_primary(self, request, context) -> None:
        bid = request.election_id.low
        primary = bid == self._highest_bid and bid in self._streams
        (self.writers if primary else self.refused).append(bid)
        if not primary:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not the primary")

    def _update(self, update: p4r.Update) -> p4r.Error:
        if update.entity.HasField("counter_entry"):
            cell = update.entity.counter_entry
            self.counters[cell.counter_id, cell.index.index] = (cell.data.packet_count, cell.data.byte_count)
            return p4r.Error()
        kind = p4r.Update.Type.Name(update.type)
        key = _key(update.entity)
        is_meter = update.entity.HasField("meter_entry")
        self.log.append(f"{kind} {update.entity.WhichOneof('entity')}")
        if self.refuse(update.entity):
            return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message="no room")
        if kind == "INSERT" and key in self.entities:
            return p4r.Error(canonical_code=rpc_code.ALREADY_EXISTS, message="there already")
        if kind != "INSERT" and key not in self.entities and not is_meter:
            return p4r.Error(canonical_code=rpc_code.NOT_FOUND, message="not there")
        if kind == "DELETE":
            del self.entities[key]
        else:
            self.entities[key] = update.entity
        return p4r.Error()

    def Read(self, request, context):
        if self._device not in (None, request.device_id):
            context.abort(grpc.StatusCode.NOT_FOUND, f"no device {request.device_id}")
        if self.config is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device.")
        answer = p4r.ReadResponse()
        self.count()
        for wanted in request.entities:
            kind = wanted.WhichOneof("entity")
            if kind == "counter_entry":
                cell = wanted.counter_entry.index if wanted.counter_entry.HasField("index") else None
                self.read_cells.add((wanted.counter_entry.counter_id, wanted.counter_entry.index.index))
                for (counter, index), (packets, octets) in self.counters.items():
                    if counter == wanted.counter_entry.counter_id and cell in (None, p4r.Index(index=index)):
                        entry = answer.entities.add().counter_entry
                        entry.counter_id = counter
                        entry.index.index = index
                        entry.data.packet_count, entry.data.byte_count = packets, octets
                continue
            if kind == "direct_counter_entry":
                for entity in self.entities.values():
                    if entity.table_entry.table_id == wanted.direct_counter_entry.table_entry.table_id != 0:
                        entry = answer.entities.add().direct_counter_entry
                        entry.table_entry.CopyFrom(entity.table_entry)
                        entry.data.packet_count, entry.data.byte_count = 3, 4500
                continue
            answer.entities.extend(
                entity
                for entity in self.entities.values()
                if entity.WhichOneof("entity") == kind and _array(wanted) in (0, _array(entity))
            )
        yield answer


def _array(entity: p4r.Entity) -> int:
    """Which table or meter it is of."""
    return entity.table_entry.table_id or entity.meter_entry.meter_id


def _key(entity: p4r.Entity) -> bytes:
    key = p4r.Entity()
    key.CopyFrom(entity)
    if key.HasField("table_entry"):
        key.table_entry.ClearField("action")
        key.table_entry.ClearField("meter_config")
    key.meter_entry.ClearField("config") if key.HasField("meter_entry") else None
    if key.HasField("packet_replication_engine_entry"):
        key.packet_replication_engine_entry.multicast_group_entry.ClearField("replicas")
    return key.SerializeToString(deterministic=True)
