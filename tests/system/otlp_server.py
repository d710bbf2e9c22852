"""Real servers that take OpenTelemetry's traces: MLflow and Arize Phoenix, started on free ports of this
machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = Path(__file__).parents[2] / ".servers" / "bin"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str) -> str:
    """One of the servers' programs; they live in an environment of their own."""
    found = PROGRAMS / name
    assert found.exists(), f"{found} is missing: `make test-system` makes that environment"
    return str(found)


@contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [
        program("mlflow"),
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
        "--backend-store-uri",
        f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination",
        str(folder / "artifacts"),
    ]
    lean = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with _running(command, folder, lean, f"http://127.0.0.1:{port}", "/health") as address:
        yield address


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    port = free_port()
    environ = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    with _running(
        [program("phoenix"), "serve"], folder, environ, f"http://127.0.0.1:{port}", "/healthz"
    ) as address:
        yield address


@contextmanager
def _running(
    command: list[str], folder: Path, environ: dict[str, str], address: str, health: str
) -> Iterator[str]:
    """The server until the context ends; then its whole process group is ended."""
    said = folder / "server.log"
    with said.open("wb") as log:
        server = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environ}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 200
        while not _answers(address + health):
            assert server.poll() is None, f"{command[0]} ended:\n{said.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"{command[0]} does not answer:\n{said.read_text()[-3000:]}"
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False
