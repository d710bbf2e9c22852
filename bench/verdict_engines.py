"""Ray, Dragon and Slurm for the programs of the exam: each is started once, and ends with the exam."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

SCRIPTS = Path(sys.executable).parent
SYSTEM_TESTS = Path(__file__).parents[1] / "tests" / "system"
"""Where the Slurm of the test suite is."""
START_S = 90.0
CORES = len(os.sched_getaffinity(0))


class NotAtHandError(Exception):
    """An engine that cannot be started on this machine; the message says why."""


class Started(NamedTuple):
    """How programs are started on an engine."""

    command: list[str]
    """What starts the interpreter."""
    environ: dict[str, str]
    """Variables by which programs find the engine."""


class EnginesAtHand:
    """The engines of this machine, one at a time, so that none is beside the programs of another.

    A context manager: what runs at its end is ended.
    """

    def __init__(self) -> None:
        self._running = ExitStack()
        self._engine: str | None = None
        self._started: Started | NotAtHandError = Started([sys.executable], {})

    def __enter__(self) -> EnginesAtHand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._running.close()

    def start(self, engine: str | None) -> Started:
        """The engine of that name, started unless it runs; None needs nothing.

        A `NotAtHandError` says that, and why, it cannot be started here.
        """
        if engine != self._engine:
            self._running.close()
            self._engine = engine
            try:
                self._started = self._running.enter_context(STARTING[engine]())
            except NotAtHandError as error:
                self._started = error
        if isinstance(self._started, NotAtHandError):
            raise self._started
        return self._started


@contextmanager
def _nothing() -> Iterator[Started]:
    """For programs that start what they need."""
    yield Started([sys.executable], {})


@contextmanager
def _ray() -> Iterator[Started]:
    """A Ray of as many CPUs as there are, with an object store for the largest arguments."""
    if find_spec("ray") is None:
        raise NotAtHandError("Ray is not installed")
    environ = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # as workers of other engines, and not after everything else
    }
    options = [
        "--head",
        "--block",
        f"--num-cpus={CORES}",
        "--port=0",
        "--include-dashboard=false",
        "--disable-usage-stats",
    ]
    store = "--object-store-memory=600000000"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        said = Path(folder) / "head.log"
        with said.open("wb") as out:
            head = subprocess.Popen(
                [SCRIPTS / "ray", "start", *options, store, f"--temp-dir={folder}/ray"],
                env={**os.environ, **environ},
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            until = time.monotonic() + START_S
            while "--address='" not in (text := said.read_text(errors="replace")):
                if head.poll() is not None or time.monotonic() > until:
                    raise NotAtHandError(f"Ray does not start: {text[-400:]}")
                time.sleep(0.1)
            yield Started(
                [sys.executable], {**environ, "RAY_ADDRESS": text.partition("--address='")[2].split("'")[0]}
            )
        finally:
            head.terminate()
            head.wait(60)


@contextmanager
def _dragon() -> Iterator[Started]:
    """Dragon starts each program itself, and ends with it."""
    if find_spec("dragon") is None:
        raise NotAtHandError("Dragon is not installed")
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    yield Started([str(SCRIPTS / "dragon"), "-s", sys.executable], {"PATH": path})


@contextmanager
def _slurm() -> Iterator[Started]:
    """The Slurm of the test suite: three nodes, all of them this machine."""
    if shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        raise NotAtHandError("Slurm is not installed")
    if find_spec("dask_jobqueue") is None:
        raise NotAtHandError("dask-jobqueue is not installed")
    if os.geteuid() != 0:
        raise NotAtHandError("starting a Slurm needs root")
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        by_hand = [sys.executable, "-m", "slurm"]
        done = subprocess.run(
            [*by_hand, "start", folder], cwd=SYSTEM_TESTS, capture_output=True, text=True, check=False
        )
        try:
            if done.returncode:
                raise NotAtHandError(f"Slurm does not start: {done.stderr[-400:]}")
            words = [line.removeprefix("export ") for line in done.stdout.splitlines()]
            yield Started([sys.executable], dict(shlex.split(word)[0].split("=", 1) for word in words))
        finally:
            subprocess.run([*by_hand, "stop", folder], cwd=SYSTEM_TESTS, capture_output=True, check=False)


STARTING = {None: _nothing, "ray": _ray, "dragon": _dragon, "slurm": _slurm}
