# SPDX-License-Identifier: Apache-2.0
"""What a check says."""

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """`state`: OK, WARN (it works, but worse than it could) or FAIL (it does not work); `mend`: what to do about it."""

    state: str
    check: str
    text: str
    mend: str = ""

    def line(self) -> str:
        """For people."""
        return f"{self.state:4}  {self.check}: {self.text}" + (f"\n      -> {self.mend}" if self.mend else "")


def judge(good: bool, check: str, text: str, mend: str, otherwise: str = WARN) -> Finding:
    """OK, or `otherwise` with its mend."""
    return Finding(OK, check, text) if good else Finding(otherwise, check, text, mend)
