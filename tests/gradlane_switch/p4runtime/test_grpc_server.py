# SPDX-License-Identifier: Apache-2.0
"""The gRPC server: TLS, client certificates, reflection, health, and the size of messages."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.gradlane_switch.switch_process import COMMAND, Controller, Process, failure
from tests.support import zygote


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, and certificates of a switch (localhost), a controller, and a stranger."""
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for authority in ("authority", "stranger-authority"):
        openssl(
            "req", "-x509", *key, "-keyout", f"{authority}.key", "-out", f"{authority}.pem", "-subj", f"/CN={authority}"
        )
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    for name in ("switch", "controller", "stranger"):
        authority = "stranger-authority" if name == "stranger" else "authority"
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signer = ("-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signer, "-extfile", "names")
    return folder


def capabilities(channel: grpc.Channel) -> str:
    stub: Any = p4r_grpc.P4RuntimeStub(channel)
    return stub.Capabilities(p4r.CapabilitiesRequest(), timeout=60).p4runtime_api_version


def secure(address: str, certificates: Path, name: str | None = None) -> grpc.Channel:
    pair = (None, None)
    if name is not None:
        pair = ((certificates / f"{name}.key").read_bytes(), (certificates / f"{name}.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((certificates / "authority.pem").read_bytes(), *pair)
    return grpc.secure_channel(f"localhost:{address.rpartition(':')[2]}", credentials)


def tls(certificates: Path) -> list[str]:
    pair = [
        "--grpc-server-cert",
        str(certificates / "switch.pem"),
        "--grpc-server-key",
        str(certificates / "switch.key"),
    ]
    return ["--grpc-server-ssl", *pair]


def test_tls_serves_who_knows_the_authority_and_nobody_in_clear(certificates: Path) -> None:
    with Process(*tls(certificates)) as process:
        with secure(process.address, certificates) as channel:
            assert capabilities(channel) == "1.5.0"
        with grpc.insecure_channel(process.address) as channel:
            assert failure(capabilities, channel)[0] is grpc.StatusCode.UNAVAILABLE


def test_mutual_tls_serves_only_controllers_with_a_certificate_of_the_authority(certificates: Path) -> None:
    authority = ["--grpc-server-cacert", str(certificates / "authority.pem"), "--grpc-server-with-client-auth"]
    with Process(*tls(certificates), *authority) as process:
        with secure(process.address, certificates, "controller") as channel:
            assert capabilities(channel) == "1.5.0"
        for name in (None, "stranger"):
            with secure(process.address, certificates, name) as channel:
                assert failure(capabilities, channel)[0] is grpc.StatusCode.UNAVAILABLE


def test_sighup_reads_certificates_again_and_a_bad_one_changes_nothing(certificates: Path, tmp_path: Path) -> None:
    for suffix in ("pem", "key"):
        shutil.copy(certificates / f"stranger.{suffix}", tmp_path / f"now.{suffix}")
    pair = ["--grpc-server-cert", str(tmp_path / "now.pem"), "--grpc-server-key", str(tmp_path / "now.key")]
    with Process("--grpc-server-ssl", *pair) as process:
        with secure(process.address, certificates) as channel:  # of another authority
            assert failure(capabilities, channel)[0] is grpc.StatusCode.UNAVAILABLE
        for suffix in ("pem", "key"):
            shutil.copy(certificates / f"switch.{suffix}", tmp_path / f"now.{suffix}")
        process.signal(signal.SIGHUP)
        process.wait_for("configuration and certificates read again")
        with secure(process.address, certificates) as before:
            assert capabilities(before) == "1.5.0"
            shutil.copy(certificates / "stranger.key", tmp_path / "now.key")
            process.signal(signal.SIGHUP)
            assert f"{tmp_path}/now.pem with the key {tmp_path}/now.key can't be used" in process.wait_for(
                "reload failed"
            )
            assert capabilities(before) == "1.5.0"  # the session goes on
            with secure(process.address, certificates) as channel:
                assert capabilities(channel) == "1.5.0"


def test_sighup_names_what_needs_a_restart_and_applies_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "switch.toml"
    file.write_text('device_id = 1\nlog_level = "error"\n')
    with Process("--config", str(file)) as process:
        file.write_text('device_id = 2\ninterface = "1@udp:127.0.0.1:5001-127.0.0.1:5002"\nlog_level = "info"\n')
        process.signal(signal.SIGHUP)
        process.wait_for("gradlane-switch: configuration and certificates read again")
        said = process.log.decode()
        assert f"device_id has changed in {file}: restart the switch to apply it" in said
        assert f"interface has changed in {file}: use `gradlane-switch port`, or restart the switch to apply it" in said


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--grpc-server-ssl"], "--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key"),
        (["--grpc-server-cert", "x"], "--grpc-server-cert needs --grpc-server-ssl"),
        (["--grpc-server-with-client-auth"], "--grpc-server-with-client-auth needs --grpc-server-ssl"),
        (["--grpc-server-max-message", "1kB"], "--grpc-server-max-message must be at least 4MiB"),
        (["--grpc-server-max-message", "big"], "big"),
        (
            ["--grpc-server-ssl", "--grpc-server-cert", "/no", "--grpc-server-key", "/no"],
            "/no: No such file or directory",
        ),
        (
            ["--grpc-server-ssl", "--grpc-server-cert", "/dev/null", "--grpc-server-key", "/dev/null"],
            "is not a PEM file",
        ),
    ],
)
def test_flags_that_can_not_be_are_refused(flags: list[str], text: str) -> None:
    command = [*COMMAND, "--grpc-server-addr", "127.0.0.1:0", *flags]
    done = zygote.run(command, 60)
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_certificate_with_another_key_is_named(certificates: Path) -> None:
    flags = tls(certificates)
    flags[-1] = str(certificates / "controller.key")
    command = [*COMMAND, "--grpc-server-addr", "127.0.0.1:0", *flags]
    done = zygote.run(command, 60)
    assert done.returncode == 1
    assert "are not a certificate and its key" in done.stderr


def test_the_server_describes_its_services(switch: Process) -> None:
    with grpc.insecure_channel(switch.address) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="p4.v1.P4Runtime"),
        ]
        listed, described = list(stub.ServerReflectionInfo(iter(requests), timeout=60))
    names = {item.name for item in listed.list_services_response.service}
    assert names == {"p4.v1.P4Runtime", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    files = described.file_descriptor_response.file_descriptor_proto
    assert any(b"SetForwardingPipelineConfig" in item for item in files)


@pytest.mark.parametrize("name", ["", "p4.v1.P4Runtime"])
def test_the_server_says_that_it_is_well(switch: Process, name: str) -> None:
    with grpc.insecure_channel(switch.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_who_watches_its_health_hears_that_it_stops() -> None:
    with Process() as process, grpc.insecure_channel(process.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answers = stub.Watch(health_pb2.HealthCheckRequest(), timeout=120)
        assert next(answers).status == health_pb2.HealthCheckResponse.SERVING
        process.terminate()
        assert next(answers).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_messages_up_to_the_limit_are_taken() -> None:
    large = p4r.Update(type=1, entity=p4r.Entity(table_entry=p4r.TableEntry(metadata=bytes(5 << 20))))
    with Process("--grpc-server-max-message", "6MiB") as process, Controller(process.address, 1) as controller:
        controller.arbitrate()
        assert failure(controller.write, large)[0] is grpc.StatusCode.FAILED_PRECONDITION
        assert failure(controller.write, large, large)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_large_batch_has_all_its_errors_if_the_client_takes_them(primary: Controller, switch: Process) -> None:
    missing = p4r.Update(type=3, entity=p4r.Entity(table_entry=p4r.TableEntry(table_id=1)))
    options = [("grpc.max_metadata_size", 16 << 20)]
    with (
        Controller(switch.address, primary.election_id, options=options) as large,
        pytest.raises(grpc.RpcError) as caught,
    ):
        large.write(*[missing] * 5000)
    error: Any = caught.value
    assert len(dict(error.trailing_metadata())["grpc-status-details-bin"]) > 5000 * 40
    assert sys.getsizeof(error.details()) < 1000
