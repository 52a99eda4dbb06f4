# SPDX-License-Identifier: Apache-2.0
"""A Prometheus of a test's own, with the configuration and rules of deploy/prometheus, that looks each second."""

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.ports import free_ports

DEPLOY = ROOT / "deploy"
START_SECONDS = 60


class Prometheus:
    """It scrapes `target` (HOST:PORT) until `close`."""

    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir()
        text = (DEPLOY / "prometheus/prometheus.yml").read_text()
        for before, after in (
            ("scrape_interval: 15s", "scrape_interval: 1s"),
            ("evaluation_interval: 15s", "evaluation_interval: 1s"),
            ('["127.0.0.1:9560"]', f'["{target}"]'),
        ):
            assert before in text
            text = text.replace(before, after)
        (folder / "prometheus.yml").write_text(text)
        shutil.copy(DEPLOY / "prometheus/gradlane-rules.yml", folder)
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        self._log = folder / "log"
        flags = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={self.address}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(["prometheus", *flags], cwd=folder, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.1)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API. AssertionError, with its words, if it refuses."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as problem:
            raise AssertionError(f"{parameters}: {problem.read().decode()}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression is now: series with `metric` and `value`."""
        return self.ask("query", query=expression)["result"]

    def rules(self) -> list[dict[str, Any]]:
        """Its alerting rules, as it has understood them."""
        return [rule for group in self.ask("rules", type="alert")["groups"] for rule in group["rules"]]

    def alerts(self) -> set[str]:
        """Which of them hold now, whether or not for long enough."""
        return {it["labels"]["alertname"] for it in self.ask("alerts")["alerts"]}

    def close(self) -> None:
        self._process.kill()
        self._process.wait(60)
