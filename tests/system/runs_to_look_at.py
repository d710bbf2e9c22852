"""The six runs that every page is opened on, in one folder: demo, large, empty, being written, killed and
hostile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from builders.hostile_run import hostile_run
from builders.runs import make_run

PROGRAM = Path(__file__).with_name("living_program.py")
ROOT = Path(__file__).parent.parent.parent
LARGE = 1_000_000
LONG = 10_000_000
"""Bytes of the hostile run's long names."""


class Living:
    """A process that records into a run; it stops at `stop`, or is killed with all that it started."""

    def __init__(
        self, runs_dir: Path, project: str, program: Path = PROGRAM, *, host: str | None = None
    ) -> None:
        """Start it; with `host` it takes the machine to be called so, where this user may do that."""
        folder = runs_dir.parent
        shutil.copy(program, folder / f"{project}.py")  # what a picture shows of it names no place of ours
        self._said = (folder / f"{project}.log").open("w+")
        search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        words = ["python", f"{project}.py", runs_dir.name, project]
        if host is not None and os.geteuid() == 0 and shutil.which("unshare"):
            words = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host, *words]
        self._process = subprocess.Popen(
            words,
            env={**os.environ, "PATH": search},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        printed = self._process.stdout.readline().strip()
        self.path = folder / printed
        """The run's folder; its first tasks have ended."""
        if not printed:
            self.kill()
            raise RuntimeError(f"the program that records ended early: see {self._said.name}")

    def tell(self, word: str) -> None:
        """`fail` for a task that fails, `hang` for one that does not end."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is recorded meanwhile; the processes stand still, and go on afterwards."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Have it close its run, and wait for that; once is enough."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(180)
        self._close()

    def kill(self) -> None:
        """End it as the kernel ends what takes too much memory, its workers too."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(180)
        self._close()

    def _close(self) -> None:
        self._said.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # a word that the killed program has not read
                    pass


@dataclass(frozen=True)
class RunsToLookAt:
    """The runs' folders. `large` and `hostile` are closed and the same each time."""

    runs_dir: Path
    demo: Path
    before: Path
    """The demo's first run."""
    large: Path
    empty: Path
    killed: Path
    hostile: Path
    living: Living

    @property
    def written(self) -> Path:
        """The run that is being written."""
        return self.living.path

    def each(self) -> dict[str, Path]:
        """All six, by what they are called in tests and pictures."""
        return {
            "demo": self.demo,
            "large": self.large,
            "empty": self.empty,
            "written": self.written,
            "killed": self.killed,
            "hostile": self.hostile,
        }


@contextmanager
def runs_to_look_at(folder: Path, large: Path, *, name_bytes: int = LONG) -> Iterator[RunsToLookAt]:
    """Record and write them below a folder, which is removed afterwards; the files of the `large` one are
    linked to."""
    runs_dir = folder / "runs"
    runs_dir.mkdir(parents=True)
    living = None
    try:
        flightlog("demo", "--runs-dir", runs_dir)
        demo, before = sorted(runs_dir.glob("run-*-sir-demo-*"), key=_started, reverse=True)
        killed = Living(runs_dir, "killed")
        killed.tell("fail")
        killed.tell("hang")
        _until_failed(killed.path)
        killed.kill()
        living = Living(runs_dir, "living")
        yield RunsToLookAt(
            runs_dir=runs_dir,
            demo=demo,
            before=before,
            large=Path(shutil.copytree(large, runs_dir / large.name, copy_function=os.link)),
            empty=make_run(runs_dir, project="empty", token="e0e0e0e0"),
            killed=killed.path,
            hostile=hostile_run(runs_dir, name_bytes=name_bytes),
            living=living,
        )
    finally:
        if living is not None:
            living.stop()
        shutil.rmtree(folder, ignore_errors=True)


def write_large(runs_dir: Path, tasks: int = LARGE) -> Path:
    """Write a closed run of so many tasks, as the benchmarks do, and give its path (1.8 GB, half a
    minute)."""
    words = [sys.executable, "-m", "bench.large_run", runs_dir, str(tasks)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    return Path(done.stdout.strip())


def flightlog(*words: object, check: bool = True, **options: Any) -> str:
    """What a command prints on its output; its notes go unread. One that fails is an error with all that it
    said."""
    command = [Path(sys.executable).with_name("flightlog"), *map(str, words)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **options
    )
    if check and done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr[-3000:]}"
        )
    return done.stdout


_reports: dict[str, dict[str, Any]] = {}


def report_json(run: Path) -> dict[str, Any]:
    """What `flightlog report --format json` says of a run; of one that was closed it is asked once."""
    found: dict[str, Any] = _reports.get(run.name) or msgspec.json.decode(
        flightlog("report", run, "--format", "json")
    )
    if found["run"]["end_time"] is not None and found["run"]["status"] == "completed":
        _reports[run.name] = found
    return found


def at_path(report: dict[str, Any], path: str) -> Any:
    """A value of a report by its path, `tasks.completed`; a KeyError where there is none."""
    value: Any = report
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def _started(run: Path) -> str:
    return str(msgspec.json.decode((run / "run.json").read_bytes())["start_time"])


def _until_failed(run: Path) -> None:
    """Wait for the failure and the task that hangs to be in the run; the words may come in any order."""
    from flightlog.events import Failure, TaskStarted
    from flightlog.store.run import Run

    for _ in range(300):
        opened = Run(run)
        hung = any(
            isinstance(event, TaskStarted) and event.task.endswith("hang") for event in opened.events("tasks")
        )
        if hung and any(isinstance(event, Failure) for event in opened.events("failures")):
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise RuntimeError(f"no failure and no hanging task came into {run}")
