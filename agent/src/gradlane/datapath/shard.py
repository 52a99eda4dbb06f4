# SPDX-License-Identifier: Apache-2.0
"""A shard of a job at a host: an engine, and what serves the host's processes on it (core/exchange/)."""

import contextlib
import os
from collections.abc import Generator
from typing import Any

from gradlane._core import ffi, lib
from gradlane.datapath.engine import Engine
from gradlane.errors import AgentError

# Of a tensor that is cut, a part has at least so many bytes: below, a second thread costs more than it saves.
LEAST_BYTES = 512 << 10


class Shard:
    """`notify` is readable when the exchange has failed."""

    def __init__(self, name: str, engine: Engine, config: Any) -> None:
        """`name`: the job's; `config`: a gl_exchange_config. Raises AgentError."""
        self.engine = engine
        self.notify = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pointer: Any = lib.gl_exchange_new(engine.runner, engine.pointer, config, self.notify)
        if self._pointer == ffi.NULL:
            os.close(self.notify)
            raise AgentError(f"job {name!r}: out of memory or file descriptors")

    @contextlib.contextmanager
    def locked(self) -> Generator[Any]:
        """Around calls on the gl_exchange, which it gives."""
        with self.engine.locked():
            yield self._pointer

    def stop(self) -> None:
        """Takes no commands any more, and no events of the engine."""
        lib.gl_exchange_stop(self._pointer)

    def close(self) -> None:
        """Gives everything back; after `stop`, and when the engine is gone. What is called later raises TypeError."""
        pointer, self._pointer = self._pointer, None
        lib.gl_exchange_free(pointer)
        os.close(self.notify)


def parts(number: int, elements: int, item: int, per_slice: int, shards: int) -> list[tuple[int, int, int]]:
    """(shard, first element, elements) of a tensor of that number: all of it on one shard, or large parts on several.

    Alike at all ranks. `item`: bytes of an element; `per_slice`: elements in a slice, of which all parts but the last
    have whole ones.
    """
    count = max(1, min(shards, elements * item // LEAST_BYTES))
    slices = -(-elements // per_slice)
    bounds = [slices * k // count * per_slice for k in range(count)] + [elements]
    return [((number + k) % shards, bounds[k], bounds[k + 1] - bounds[k]) for k in range(count)]
