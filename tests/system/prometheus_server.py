"""Debian's Prometheus and node_exporter, started for a test on free ports of this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import debian

PROGRAMS = {"prometheus": "prometheus", "prometheus-node-exporter": "prometheus-node-exporter"}
PATIENCE_S = 60.0


def installed() -> None:
    """Have the programs, promtool with them."""
    debian.install(PROGRAMS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def eventually(check: Callable[[], object]) -> None:
    """Wait until a check passes; its own complaint where it never does."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            check()
            return
        except (AssertionError, urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def running(command: list[str], address: str, log: Path) -> Iterator[str]:
    """A server, from when it answers at `address` to the end of the block."""
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as server:
        try:
            eventually(lambda: fetch(address))
            yield address
        except urllib.error.URLError as error:
            raise AssertionError(f"{command[0]} does not answer: {log.read_text()[-2000:]}") from error
        finally:
            server.terminate()
            try:
                server.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                server.kill()


class Prometheus:
    """A server that scrapes the targets every second."""

    def __init__(self, port: int) -> None:
        self._api = f"http://127.0.0.1:{port}/api/v1"

    def ask(self, query: str) -> dict[str, float]:
        """The answer to a query: values by their one label that is not of the target, or by nothing."""
        found = json.loads(fetch(f"{self._api}/query?{urllib.parse.urlencode({'query': query})}"))
        assert found["status"] == "success", found
        return {
            ",".join(f"{name}={value}" for name, value in sorted(row["metric"].items())): float(
                row["value"][1]
            )
            for row in found["data"]["result"]
        }

    def target_errors(self) -> list[str]:
        """What went wrong in the last scrapes."""
        found = json.loads(fetch(f"{self._api}/targets"))
        return [one["lastError"] for one in found["data"]["activeTargets"] if one["lastError"]]


@contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[Prometheus]:
    config, port = folder / "prometheus.yml", free_port()
    hosts = [urllib.parse.urlsplit(target).netloc for target in targets]
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [{"job_name": "flightlog", "static_configs": [{"targets": hosts}]}],
            }
        )
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with running(command, f"http://127.0.0.1:{port}/-/ready", folder / "prometheus.log"):
        yield Prometheus(port)


@contextmanager
def node_exporter(folder: Path, textfiles: Path) -> Iterator[str]:
    """node_exporter with its textfile collector alone; gives the address of its page."""
    port = free_port()
    command = [
        "prometheus-node-exporter",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={textfiles}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(command, f"http://127.0.0.1:{port}/metrics", folder / "node_exporter.log") as address:
        yield address


def complaints(page: str) -> str:
    """What `promtool check metrics` finds wrong with a page; empty for nothing."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip() if done.returncode else ""
