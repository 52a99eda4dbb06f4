# SPDX-License-Identifier: Apache-2.0
"""What is exported makes the same fabric and the same entries again."""

import dataclasses
import random
from pathlib import Path

import pytest

from gradlane import job, pem
from gradlane_controller.desired.keys import without_key
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.fabric_text import to_toml
from gradlane_controller.policy import desired_entities
from tests.gradlane_controller.controller_thread import ControllerThread
from tests.gradlane_controller.texts import job_text, leafspine_text


def random_fabric(chance: random.Random) -> str:
    """The text of a fabric file: a tree of switches in any order, hosts, and some of all that a file may say."""
    names = [f"s{n}" for n in range(chance.randint(1, 5))]
    numbers = {name: iter(chance.sample([*range(1, 255), *range(256, 511)], 60)) for name in names}
    text = ""
    if chance.random() < 0.5:
        yellow = chance.choice((0.25, 0.3, 1 / 3))
        text += f"[thresholds]\nyellow = {yellow}\nred = {yellow + 0.1}\n"
    if chance.random() < 0.3:
        text += '[tls]\nca = "/c\u00e9 \\"a\\".pem"\n' + chance.choice(("", 'server_name = "x"\n'))
    for place, name in enumerate(names):
        text += f'[[switch]]\nname = "{name}"\naddress = "[::1]:{9000 + place}"\n'
        text += f"index = {100 + place}\n" if chance.random() < 0.3 else ""
        text += f"device_id = {2**63 - 1 - place}\n" if chance.random() < 0.3 else ""
        text += chance.choice(("", 'target = "bmv2"\n', "aggregation = true\n", "pipes = 2\n"))
        text += '[switch.tls]\nca = "/own"\ncertificate = "/cert"\nkey = "/key"\n' if chance.random() < 0.2 else ""
    for n in range(chance.randint(1, 6)):
        switch = chance.choice(names)
        text += f'[[port]]\nswitch = "{switch}"\nnumber = {next(numbers[switch])}\nhost = "h{n}"\n'
        text += f'mac = "02:00:00:00:{n:02x}:0A"\nhost_mac = "02:00:00:00:{n:02x}:02"\naddress = "10.0.{n}.2"\n'
        text += chance.choice(("", f'prefix = "10.0.{n}.0/24"\ngateway = "10.0.{n}.1"\n'))
        text += chance.choice(("", f'address6 = "fd00:{n}::2"\nprefix6 = "fd00:{n}::/64"\ngateway6 = "fd00:{n}::1"\n'))
        text += chance.choice(("", f'also = ["10.1.{n}.2", "fd01:{n}::2"]\n'))
        rate, buffer = chance.choice(("2.5gbit", "100mbit", "333.3kbit")), chance.choice(("64kB", "3MiB"))
        text += f'rate = "{rate}"\nbuffer = "{buffer}"\n'
    for place, name in enumerate(names[1:], 1):
        other = names[chance.randrange(place)]
        text += f'[[link]]\nends = ["{name}:{next(numbers[name])}", "{other}:{next(numbers[other])}"]\n'
        text += 'rate = "400gbit"\nbuffer = "64KiB"\n'
    for dscp in chance.sample(range(56), chance.randint(0, 3)):
        text += f"[[dscp]]\ndscp = {dscp}\nqueue_class = {chance.randrange(7)}\n"
    if chance.random() < 0.5:
        bounds = ("least_threshold = 0.05\nmost_threshold = 0.5\n", "droppable = 0.0\n", "tolerance = 0.25\n")
        text += "".join(["[adaptive]\n", *chance.sample(bounds, chance.randint(1, 3))])
    ports = [(it.switch, it.number) for it in fabric_file.parse(text, "f").ports]
    for switch, number in chance.sample(ports, 1) if chance.random() < 0.5 else ():
        text += f'[[rewrite]]\nswitch = "{switch}"\nport = {number}\ndscp = 43\nto = 10\n'
    return text


def alike(one: Fabric, other: Fabric) -> bool:
    names = [it.name for it in dataclasses.fields(Fabric) if it.name != "file"]
    return [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


@pytest.mark.parametrize("seed", range(150))
def test_a_fabric_is_the_same_when_its_text_is_read_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pem, "check", lambda *_: None)
    chance = random.Random(seed)
    known = {f"s{n}": 50 - n for n in range(chance.randint(0, 4))}
    fabric = fabric_file.parse(random_fabric(chance), "f", known)
    again = fabric_file.parse(to_toml(fabric), "g")
    assert alike(fabric, again)
    assert desired_entities(fabric, []) == desired_entities(again, [])


def test_a_running_controller_exports_what_makes_the_same_entries(tmp_path: Path, make_fake_switch) -> None:
    switches = [make_fake_switch() for _ in range(4)]
    text = leafspine_text(addresses=[each.address for each in switches])
    it = ControllerThread(tmp_path, text, job_text(hosts=(1, 3)))
    try:
        it.until(lambda: it.do(it.it.status)["ready"])
        it.do(it.it.put_job, job_text("other", 2, hosts=(2, 4), base=4096))
        found = it.do(it.it.export)
        numbers = {each["name"]: each["index"] for each in it.do(it.it.status)["jobs"]}
        counts = [len(each.entities) for each in switches]
        held = [dict(each.entities) for each in switches]
    finally:
        it.close()
    texts = {"demo": job_text(hosts=(1, 3)), "other": job_text("other", 2, hosts=(2, 4), base=4096)}
    assert found["jobs"] == {name: without_key(text) for name, text in texts.items()}
    assert found["drained"] == []
    # Other switches, which know nothing, get the same of these files.
    others = [make_fake_switch() for _ in range(4)]
    exported = found["fabric"]
    for old, new in zip(switches, others, strict=True):
        exported = exported.replace(old.address, new.address)
    (tmp_path / "again").mkdir()
    again = ControllerThread(tmp_path / "again", exported, *found["jobs"].values())
    try:
        again.until(lambda: again.do(again.it.status)["ready"])
        assert {each["name"]: each["index"] for each in again.do(again.it.status)["jobs"]} == numbers
        assert [len(each.entities) for each in others] == counts
        assert [dict(each.entities) for each in others] == held
    finally:
        again.close()
    jobs = [job.parse(text, "j") for text in found["jobs"].values()]
    assert desired_entities(fabric_file.parse(found["fabric"], "f"), jobs) == desired_entities(
        fabric_file.parse(text, "f"), jobs
    )
