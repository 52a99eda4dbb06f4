# SPDX-License-Identifier: Apache-2.0
"""The errors that users of the switch see."""


class SwitchError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(SwitchError):
    """Flags that contradict one another; the message names them."""


class ProgramError(SwitchError):
    """A P4 program that can't be run: malformed JSON, or a feature that this switch lacks.

    The message names the feature, and the place in the P4 source where the compiler recorded it.
    """


class BuildError(SwitchError):
    """The system compiler is missing or refused the generated code."""


class PortError(SwitchError):
    """A port or its interface can't be used as asked."""


class EntityError(SwitchError):
    """A P4Runtime entity that can't be written or read.

    `code` is the canonical code (google.rpc.Code) that the controller gets.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
