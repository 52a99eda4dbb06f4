# SPDX-License-Identifier: Apache-2.0
"""What a check says."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """`state`: OK, WARN (it works, but worse than it could) or FAIL (it does not work); `fix`: what to do about it."""

    state: str
    check: str
    text: str
    fix: str = ""

    def line(self) -> str:
        """For people."""
        return f"{self.state:4}  {self.check}: {self.text}" + (f"\n      -> {self.fix}" if self.fix else "")


def judge(good: bool, check: str, text: str, fix: str, otherwise: str = WARN) -> Finding:
    """OK, or `otherwise` with its fix."""
    return Finding(OK, check, text) if good else Finding(otherwise, check, text, fix)
