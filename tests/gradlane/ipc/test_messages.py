# SPDX-License-Identifier: Apache-2.0
"""Messages between a training process and its agent."""

import gc
import os
import socket
import tempfile

import pytest

from gradlane.ipc import messages
from tests.support.resources import descriptors


def named(length: int) -> messages.Message:
    """A message of so many bytes."""
    empty = {"op": "forget", "name": ""}
    return {**empty, "name": "x" * (length - len(messages._data(empty)))}  # pyright: ignore[reportPrivateUsage]


def test_what_an_agent_would_not_take_whole_is_not_sent() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        longest = named(messages.MAX_MESSAGE)
        messages.send(ours, longest)
        assert messages.receive_request(theirs) == longest
        with pytest.raises(ValueError, match="message 'forget' has 200001 bytes; at most 200000 fit"):
            messages.send(ours, named(messages.MAX_MESSAGE + 1))


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"op":1}', b'{"op":"long"}'])
def test_what_is_no_message_leaves_no_descriptor_open(data: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, tempfile.TemporaryFile() as file:
        file.write(b"no message")
        file.flush()
        gc.collect()  # or what other tests have left is closed in between
        before = descriptors(os.getpid())
        socket.send_fds(ours, [data], [file.fileno()] * 3)
        with pytest.raises(ValueError, match=r"."):
            messages.receive(theirs)
        assert descriptors(os.getpid()) == before
