# SPDX-License-Identifier: Apache-2.0
"""The programs of the frameworks' pages do what these say, as they are pasted, by the command that they name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.ranks import PATIENCE, needs
from tests.support.agents import NETWORK
from tests.support.paths import DOCS, EXAMPLES
from tests.support.ports import free_ports

# Of each program: its page and number there, how many losses it tells, and the backends that it runs on.
PROGRAMS = [("tensorflow", 0, 1, ["tensorflow"]), ("tensorflow", 1, 5, ["tensorflow", "jax", "torch"])]
TRAINERS = {"accelerate": 1, "transformers": 2, "lightning": 3}  # numbers of their programs


def text_of(page: str) -> str:
    """That page of docs/."""
    return (DOCS / f"{page}.md").read_text()


def programs_of(page: str) -> list[str]:
    """The programs in Python of that page, in their order."""
    return re.findall(r"^```python\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def run(command: str, program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a page's command on its program, where job files are."""
    (folder / "train.py").write_text(program)
    (folder / "examples").mkdir()
    for name in ("job.toml", "template.toml"):
        job = (EXAMPLES / name).read_text().replace("127.0.0", NETWORK)  # other tests run beside this one
        (folder / "examples" / name).write_text(job)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "TF_CPP_MIN_LOG_LEVEL": "2", "HF_HUB_OFFLINE": "1", **variables}
    return subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def losses_of(done: subprocess.CompletedProcess[str]) -> list[float]:
    """What a program that has succeeded told, at rank 0 alone."""
    assert not done.returncode, done.stderr[-5000:]
    return [float(loss) for loss in re.findall(r"^(?!\{).*loss:? ([0-9.]+)", done.stdout, re.MULTILINE)]


@pytest.mark.parametrize(
    ("page", "program", "count", "backend"),
    [
        *(
            pytest.param(page, program, count, backend, marks=needs("keras", backend))
            for page, program, count, backends in PROGRAMS
            for backend in backends
        ),
        pytest.param("jax", 0, 1, "jax", marks=needs("jax", "optax")),
        pytest.param("mxnet", 0, 1, "", marks=needs("mxnet")),
        *(pytest.param("trainers", number, 5, "torch", marks=needs(name)) for name, number in TRAINERS.items()),
    ],
)
def test_a_program_of_the_page_learns(page: str, program: int, count: int, backend: str, tmp_path: Path) -> None:
    [command] = re.findall(r"^    (for rank in .*|GRADLANE_.* torchrun .*)$", text_of(page), re.MULTILINE)
    losses = losses_of(run(command, programs_of(page)[program], tmp_path, KERAS_BACKEND=backend))
    assert len(losses) == count
    assert losses[-1] < (3.0 if count == 1 else 0.9 * losses[0])


@pytest.mark.parametrize(
    ("program", "machines"),
    [
        pytest.param("accelerate", 1, marks=needs("accelerate")),
        pytest.param("accelerate", 2, marks=needs("accelerate")),
        pytest.param("transformers", 1, marks=needs("transformers", "accelerate")),
    ],
)
def test_accelerates_launcher_starts_a_program_of_the_page(program: str, machines: int, tmp_path: Path) -> None:
    [command] = re.findall(r"^    (GRADLANE_.* accelerate launch .*)$", text_of("trainers"), re.MULTILINE)
    if machines == 2:
        [port] = free_ports(1)
        among = f"--num_machines 2 --main_process_ip 127.0.0.1 --main_process_port {port} --machine_rank $rank train.py"
        for rank in range(2):  # here both are one machine, so they have to be told their addresses
            (tmp_path / f"{rank}.toml").write_text(f'address = "{NETWORK}.{91 + rank}"\n')
        command = command.replace("train.py", among).replace("SOCKET=process", "SOCKET=process:$rank.toml")
        each = f'for rank in 0 1; do {command} >$rank.out & all="$all $!"; done'  # two at once could share a line
        command = f"{each}; for it in $all; do wait $it || exit 1; done; cat 0.out 1.out"
    losses = losses_of(run(command, programs_of("trainers")[TRAINERS[program]], tmp_path))
    assert len(losses) == 5 * machines  # Accelerate tells them once on each
    assert losses[-1] < 0.9 * losses[0]
