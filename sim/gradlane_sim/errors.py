# SPDX-License-Identifier: Apache-2.0
"""What is told to the user, and ends the program."""


class SimulationError(Exception):
    """It says what is wrong, and what would be right."""


class SpecificationError(SimulationError):
    """What is to be simulated makes no sense."""


def need(holds: bool, what: str) -> None:
    """Raises SpecificationError."""
    if not holds:
        raise SpecificationError(what)
