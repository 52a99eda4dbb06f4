# SPDX-License-Identifier: Apache-2.0
"""gradlane-switch does with every program of the corpus what BMv2 does: each frame, port, counter, register, digest."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.differential import recording
from tests.differential.corpus import Program
from tests.differential.expectations import DISAGREEMENTS
from tests.differential.members import member, names
from tests.differential.targets import Outcome, run_bmv2, run_gradlane
from tests.support.paths import DOCS

CORPUS = pytest.mark.parametrize("name", names())
SHOWN = 3
SAMPLE = 9  # every ninth program


def differences(program: Program, expected: Outcome, got: Outcome) -> list[str]:
    """What differs, in words, with the frames; the first few windows."""
    found: list[str] = []
    for number, (entered, wanted, left) in enumerate(zip(program.windows, expected.windows, got.windows, strict=True)):
        if wanted != left and len(found) < SHOWN:
            lines = [f"window {number}:"]
            lines += [f"  entered port {port}: {frame.hex()}" for port, frame in entered]
            lines += [f"  expected at {port}: {frame.hex()}" for port, frame in wanted if (port, frame) not in left]
            lines += [f"  got at {port}: {frame.hex()}" for port, frame in left if (port, frame) not in wanted]
            found.append("\n".join(lines))
    ends = ("", expected.state, got.state)
    points = zip(sorted(program.changes), expected.points, got.points, strict=True)
    for when, before, after in (*((f" before window {number}", *pair) for number, *pair in points), ends):
        for name in before.keys() | after.keys():
            wanted, held = before.get(name), after.get(name)
            if wanted != held:
                found.append(f"{name}{when}: expected {wanted}, got {held}")
    for name in expected.digests.keys() | got.digests.keys():
        wanted, told = expected.digests.get(name, []), got.digests.get(name, [])
        if wanted != told:
            pairs = [pair for pair in zip(wanted, told, strict=False) if pair[0] != pair[1]]
            found.append(f"digest {name}: {len(wanted)} expected, {len(told)} got, first differing: {pairs[:SHOWN]}")
    return found


def test_every_disagreement_is_documented() -> None:
    assert DISAGREEMENTS.keys() <= set(names())
    text = (DOCS / "limitations.md").read_text()
    assert [name for name in DISAGREEMENTS if f"`{name}`" not in text] == []


def test_every_record_belongs_to_a_program_and_they_are_small() -> None:
    paths = sorted(recording.RECORDS.iterdir())
    assert [path.name for path in paths] == sorted(f"{name}.bin" for name in names())
    assert sum(path.stat().st_size for path in paths) < 2_500_000


@pytest.fixture
def recorded() -> tuple[Program, Outcome]:
    program = member("counters")
    return program, recording.load(program)


def test_a_changed_frame_a_lost_frame_and_a_changed_count_are_found(recorded: tuple[Program, Outcome]) -> None:
    program, outcome = recorded
    assert differences(program, outcome, outcome) == []
    (port, frame), *others = outcome.windows[5]
    changed = (port, frame[:-1] + bytes([frame[-1] ^ 1]))
    moved = (port + 1, frame)
    for window in ([changed, *others], others, [moved, *others]):
        windows = [*outcome.windows[:5], window, *outcome.windows[6:]]
        assert len(differences(program, outcome, replace(outcome, windows=windows))) == 1
    swapped = [others[0], (port, frame), *others[1:]]
    windows = [*outcome.windows[:5], swapped, *outcome.windows[6:]]
    assert len(differences(program, outcome, replace(outcome, windows=windows))) == 1
    state = {**outcome.state, "I.packets": [[cell + 1] for (cell,) in outcome.state["I.packets"]]}
    assert len(differences(program, outcome, replace(outcome, state=state))) == 1
    assert len(differences(program, outcome, replace(outcome, digests={"other": [[1]]}))) == 1


def test_a_record_reads_back_as_it_was_written(
    recorded: tuple[Program, Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, outcome = recorded
    monkeypatch.setattr(recording, "RECORDS", tmp_path)
    with pytest.raises(recording.RecordError, match=r"counters\.bin is missing"):
        recording.load(program)
    recording.save(program, outcome)
    assert recording.load(program) == outcome


def test_a_record_of_other_frames_is_refused(recorded: tuple[Program, Outcome]) -> None:
    changed = Program("counters")
    port, frame = changed.frames[700]
    changed.frames[700] = (port, frame + b"x")
    with pytest.raises(recording.RecordError, match=r"run python -m tests\.differential\.record"):
        recording.load(changed)


@CORPUS
def test_the_frames_reach_every_state_of_the_parser(name: str) -> None:
    program = member(name)
    assert program.frames
    assert program.generator.reached == program.generator.states


@CORPUS
def test_gradlane_switch_does_what_bmv2_did(name: str) -> None:
    program = member(name)
    found = differences(program, recording.load(program), run_gradlane(program))
    if name in DISAGREEMENTS:
        assert found, f"{name} agrees now: take it off the list, and out of docs/limitations.md"
    else:
        assert not found, "\n".join(found)


@CORPUS
def test_bmv2_still_does_what_was_recorded(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    command = shutil.which("simple_switch_grpc")
    if command is None:
        pytest.skip("simple_switch_grpc (BMv2) is not on PATH: its recorded results were used")
    # Each takes seconds, and BMv2 is the same as long as nobody builds another one.
    if name not in names()[::SAMPLE] and not request.config.getoption("--thorough"):
        pytest.skip("only a sample of the corpus runs on BMv2; --thorough runs it whole")
    program = member(name)
    assert differences(program, recording.load(program), run_bmv2(program, command, tmp_path)) == []
