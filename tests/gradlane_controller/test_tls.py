# SPDX-License-Identifier: Apache-2.0
"""TLS between the controller and gradlane-switch: who is served, and what is said to whom that is not."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from finsy import Switch

from gradlane_controller.desired import pipeline
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric_file import FabricError
from gradlane_controller.network.tls import Tls
from gradlane_controller.session.connection import Connection, FinsyLog
from tests.gradlane.control.certificates import Authority
from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.running_switches import SwitchProcess, Tunnels, gradlane_switch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.ports import free_ports

PIPELINE = pipeline.load(pipeline.DEFAULT_FOLDER)


class Certificates:
    """Of a switch called "leaf", of the controller, and one like it of somebody else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority, other = Authority(folder, "ca"), Authority(folder, "other")
        authority.issue("leaf", host="leaf")
        authority.issue("controller", host="controller")
        authority.issue("expired", host="leaf", days=-1)
        other.issue("stranger", host="controller")

    def tls(self, table: str = "[tls]", **more: str) -> str:
        """A table of the fabric file; `pair` names certificate and key."""
        files = {"ca": "ca.pem"} | more
        if pair := files.pop("pair", None):
            files |= {"certificate": f"{pair}.crt", "key": f"{pair}.key"}
        paths = {key: str(self.folder / value) if key != "server_name" else value for key, value in files.items()}
        return "\n".join((table, *(f'{key} = "{value}"' for key, value in paths.items()), ""))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def serve(certificates: Certificates) -> Iterator[Callable[..., str]]:
    """Starts a gradlane-switch with TLS, of the certificate of that name; its address."""
    started: dict[tuple[str, bool], tuple[SwitchProcess, Tunnels]] = {}

    def start(name: str = "leaf", mutual: bool = False) -> str:
        if (name, mutual) not in started:
            at = f"{certificates.folder}/{name}"
            flags = ["--grpc-server-ssl", "--grpc-server-cert", f"{at}.crt", "--grpc-server-key", f"{at}.key"]
            if mutual:
                flags += ["--grpc-server-cacert", f"{certificates.folder}/ca.pem", "--grpc-server-with-client-auth"]
            wires, address = Tunnels(range(1, 5)), f"127.0.0.1:{free_ports(1)[0]}"
            process = gradlane_switch(address, wires.interfaces, certificates.folder, more=flags)
            started[name, mutual] = process, wires
            process.start()
            process.wait_until_listening()
        return started[name, mutual][0].address

    yield start
    for process, wires in started.values():
        process.stop()
        wires.close()


class Attempts:
    """What a connection to the first switch of a fabric file says: why there is no session, or "ready"."""

    def __init__(self, text: str) -> None:
        self._said: asyncio.Queue[str] = asyncio.Queue()
        (where,) = fabric_file.parse(text, "f.toml").switches
        say = self._said.put_nowait

        def lost(reason: str, _closed: bool) -> None:
            say(reason)

        leads, outbid = lambda: 1, lambda _least: None
        self._connection = Connection(where, PIPELINE, self._ready, self._alive, lost, say, leads, outbid, FinsyLog())

    async def _ready(self, _switch: Switch) -> None:
        self._said.put_nowait("ready")

    async def _alive(self, _switch: Switch) -> None:
        pass

    async def wait_for(self, text: str) -> None:
        """Tries until it says that."""
        task = asyncio.create_task(self._connection.run())
        try:
            while text not in await asyncio.wait_for(self._said.get(), PATIENCE):
                pass
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_a_switch_with_mutual_tls_is_filled(certificates: Certificates, serve, run_controller) -> None:
    text = fabric_text(serve(mutual=True)) + certificates.tls(pair="controller", server_name="leaf")
    it: Running = run_controller(text, job_text())
    it.wait_for("converged s1")
    assert it.ask("GET", "/status")[1]["ready"]


@pytest.mark.parametrize(
    ("served", "tls", "reason"),
    [
        ({}, {"ca": "other.pem", "server_name": "leaf"}, "a certificate that does not follow from "),
        ({}, {"server_name": "spine"}, "a certificate for another name; `server_name` of its [tls] must be one"),
        ({}, {}, "a certificate for another name"),  # the address has none
        ({"name": "expired"}, {"server_name": "leaf"}, "certificate has expired"),
        ({"mutual": True}, {"server_name": "leaf"}, "it may want a certificate, and none is in its [tls]"),
        ({"mutual": True}, {"server_name": "leaf", "pair": "stranger"}, "it may not trust the certificate in its"),
        ({}, None, "if it speaks TLS, the fabric file needs [tls] for it"),
    ],
)
def test_a_handshake_that_fails_says_why(
    certificates: Certificates, serve, served: dict[str, object], tls: dict[str, str] | None, reason: str
) -> None:
    text = fabric_text(serve(**served)) + (certificates.tls(**tls) if tls is not None else "")
    asyncio.run(Attempts(text).wait_for(reason))


def test_a_switch_without_tls_says_so(certificates: Certificates, fake_switch) -> None:
    text = fabric_text(fake_switch.address) + certificates.tls(server_name="leaf")
    asyncio.run(Attempts(text).wait_for("speaks no TLS, and the fabric file has [tls] for it"))


def test_files_are_read_again_for_each_session(certificates: Certificates, serve, tmp_path: Path) -> None:
    """A renewed authority takes effect, and a file that has become bad is named, without a restart."""
    ca = tmp_path / "ca.pem"
    ca.write_bytes((certificates.folder / "other.pem").read_bytes())

    async def run() -> None:
        it = Attempts(fabric_text(serve()) + certificates.tls(ca=str(ca), server_name="leaf"))
        await it.wait_for("does not follow")
        ca.write_text("")
        await it.wait_for(f"{ca} can't be used")
        ca.write_bytes((certificates.folder / "ca.pem").read_bytes())
        await it.wait_for("ready")

    asyncio.run(run())


def test_keys_of_a_switch_replace_those_of_the_fabric(certificates: Certificates) -> None:
    own = certificates.tls("[switch.tls]", server_name="leaf").replace(f'ca = "{certificates.folder}/ca.pem"', "")
    text = fabric_text().replace("[thresholds]", f"{own}[thresholds]", 1)
    (switch,) = fabric_file.parse(text + certificates.tls(pair="controller"), "f.toml").switches
    at = certificates.folder
    assert switch.tls == Tls(at / "ca.pem", at / "controller.crt", at / "controller.key", "leaf")


def test_a_switch_has_the_name_of_the_fabrics_table_unless_it_has_its_own(certificates: Certificates) -> None:
    text = fabric_text().replace("[thresholds]", certificates.tls("[switch.tls]") + "[thresholds]", 1)
    (switch,) = fabric_file.parse(text + certificates.tls(server_name="leaf"), "f.toml").switches
    assert switch.tls is not None
    assert switch.tls.server_name == "leaf"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[tls]", "tls.ca: is missing"),
        ('[tls]\nca = "ca.pem"', "tls.ca: is 'ca.pem'; it must be an absolute path"),
        ('[tls]\nca = "/none"', "tls.ca: /none can't be used: No such file"),
        ('[tls]\nca = "CA"\nkey = "/k"', "tls.certificate: is missing: a certificate and its key go together"),
        ('[tls]\nca = "CA"\ncertificate = "CA"\nkey = "CA"', "tls.certificate: CA with the key CA can't be used"),
        ('[tls]\nca = "CA"\nname = "x"', "tls.name: is not known here"),
    ],
)
def test_a_bad_table_is_named(certificates: Certificates, text: str, reason: str) -> None:
    ca = str(certificates.folder / "ca.pem")
    with pytest.raises(FabricError) as raised:
        fabric_file.parse(fabric_text() + text.replace("CA", ca), "f.toml")
    assert reason.replace("CA", ca) in str(raised.value)
