# SPDX-License-Identifier: Apache-2.0
"""TOML from anybody: what would take tomllib very long, or break it, is named. Every mistake has its line."""

import random
import time

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from gradlane import toml_file, toml_lines
from gradlane.toml_file import FileError, Table


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ok = 1\n" + "a." * 40_000 + "a = 1", "line 2 has a key of more than 16 parts"),
        ("[" + "'a' . " * 16 + "b]", "line 1 has a key of more than 16 parts"),
        ('"a"."b.c"' * 2 + ".d" * 16 + " = 1", "a key of more than 16 parts"),
        ("a = " + "[" * 5000 + "]" * 5000, "it is nested too deeply"),
        ("a = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        ("a = [{b = 0x" + "f" * 5000 + "}]", "has an integer of more than 64 bits"),
        ("a = -9223372036854775809", "has an integer of more than 64 bits"),
    ],
)
def test_documents_that_cost_too_much_are_named(text: str, reason: str) -> None:
    with pytest.raises(FileError) as raised:
        toml_file.parse(FileError, text, "f.toml")
    assert str(raised.value).startswith(("f.toml: ", f"f.toml:{raised.value.line}: "))
    assert reason in str(raised.value)


@given(st.lists(st.from_regex(r"[a-z0-9-]{1,4}", fullmatch=True), min_size=1, max_size=16))
def test_keys_of_some_parts_are_keys(parts: list[str]) -> None:
    it = toml_file.parse(FileError, f"{'.'.join(parts)} = 18446744073709551615", "f.toml")
    for part in parts[:-1]:
        it = it.table(part)
    assert it.integer(parts[-1], 0, 2**64 - 1) == 2**64 - 1


def test_arrays_of_tables_have_a_length() -> None:
    def of(text: str) -> list[Table]:
        return toml_file.parse(FileError, text, "f.toml").tables("a", most=2)

    assert len(of("a = [{}, {}]")) == 2
    with pytest.raises(FileError, match="a: has 3 tables; at most 2 are possible"):
        of("a = [{}, {}, {}]")


WORDS = ("a", "b-1", '"x.y"', "'q [r]'", '"#"', "c_2")
LEAVES = (
    "1",
    "1.5",
    "true",
    "1979-05-27 07:32:00",
    '"[t]"',
    "'#no'",
    '"""\n[no]\n= , }\n"""',
    "'''\n\n'''",
    '"\\\\"',
    '"\\""',
)


class Writer:
    """A random document, and where it has put each of its keys: the oracle."""

    def __init__(self, seed: int) -> None:
        self.chance, self.text, self.where = random.Random(seed), "", dict[str, int]()
        self.pairs("", 2)
        for number, word in enumerate(self.chance.sample(WORDS, 3)):
            array = self.chance.random() < 0.5
            for item in range(self.chance.randint(1, 3) if array else 1):
                path = f"t{number}.{word.strip(chr(34) + chr(39))}"
                self.note(f"t{number}")
                self.note(path)
                inner = f"{path}[{item}]" if array else path
                self.note(inner)
                self.text += f"{' ' * item}[[t{number} . {word}]] # [x]\n" if array else f"[t{number}.{word}]\n"
                self.pairs(inner, 3)
                if self.chance.random() < 0.5:
                    self.note(f"{inner}.sub")
                    self.text += f"[ t{number}.{word}.sub ]\n"
                    self.pairs(f"{inner}.sub", 2)

    def note(self, path: str) -> None:
        self.where.setdefault(path, self.text.count("\n") + 1)

    def pairs(self, path: str, most: int) -> None:
        """Lines of a table."""
        for word in self.chance.sample(WORDS, self.chance.randint(0, most)):
            key = ".".join(filter(None, (path, word.strip(chr(34) + chr(39)))))
            self.note(key)
            self.text += f"{word} ="
            self.value(key, 3)
            self.text += self.chance.choice(("", " # a = [", "  ")) + "\n" * self.chance.randint(1, 2)

    def value(self, path: str, depth: int) -> None:
        kind = self.chance.random() if depth else 0
        if kind < 0.4:
            self.text += f" {self.chance.choice(LEAVES)}"
        elif kind < 0.7:
            self.text += " ["
            for item in range(self.chance.randint(0, 3)):
                self.text += self.chance.choice(("", "\n", " # ]\n"))
                self.note(f"{path}[{item}]")
                self.value(f"{path}[{item}]", depth - 1)
                self.text += self.chance.choice((",", "\n,"))
            self.text += "]"
        else:
            self.text += " {"
            for number, word in enumerate(self.chance.sample(WORDS, self.chance.randint(0, 3))):
                self.text += ", " if number else " "
                key = f"{path}.{word.strip(chr(34) + chr(39))}"
                self.note(key)
                self.text += f"{word} ="
                self.value(key, depth - 1)
            self.text += "}"


@pytest.mark.parametrize("seed", range(200))
def test_every_key_has_the_line_in_which_it_was_written(seed: int) -> None:
    it = Writer(seed)
    tomlkit.parse(it.text)  # it is a document
    found = {key: toml_lines.find(it.text, key) for key in it.where}
    assert found == it.where, it.text


def test_what_is_missing_has_the_line_of_its_table() -> None:
    text = "[job]\nid = 1\n\n[[worker]]\nrank = 0\n[[worker]]\nrank = 1\n"
    for key, line in (("job.name", 1), ("worker[1].host", 6), ("worker[0].host", 4), ("policy.red", None), ("", None)):
        assert toml_lines.find(text, key) == line


def test_lines_are_found_in_time_that_grows_with_the_length_whatever_it_says() -> None:
    def seconds(text: str) -> float:
        begin = time.process_time()
        toml_lines.find(text, "a.b")
        return time.process_time() - begin

    for text in (
        "a = " + "[" * 300 + "1," * 100_000,
        "a.b.c = 1\n" * 20_000,
        '"' * 100_000,
        "'" * 99_999,
        "[" * 99_999,
    ):
        assert seconds(text) < 5


@pytest.mark.parametrize(
    ("text", "line"), [("a = 1\nb = = 2", 2), ("a = 1\nb = [\n", 3), ("a = 1\na = 2\n", 2), ("x\n", 1)]
)
def test_a_syntax_error_has_its_line(text: str, line: int) -> None:
    with pytest.raises(FileError) as raised:
        toml_file.parse(FileError, text, "f.toml")
    assert str(raised.value).startswith(f"f.toml:{line}: not valid TOML: ")


def test_an_unknown_key_suggests_the_nearest_one_and_mistakes_of_several_tables_are_told_together() -> None:
    root = toml_file.parse(FileError, "[[a]]\nadress = 1\n[[a]]\naddress = 'x'\n[[a]]\naddress = 1\nzzz = 1\n", "f")
    for table in root.tables("a"):
        with table.going_on():
            if table.has("address"):
                table.integer("address", 0, 5)
            table.finish()
    with pytest.raises(FileError) as raised:
        root.done()
    assert [str(it) for it in (raised.value, *raised.value.others)] == [
        "f:2: a[0].adress: is not known here; did you mean 'address'? known: address",
        "f:4: a[1].address: is 'x'; it must be an integer from 0 to 5",
        "f:7: a[2].zzz: is not known here; known: address",
    ]
