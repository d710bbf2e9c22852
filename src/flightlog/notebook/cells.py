"""The cells of a notebook as the tasks of a run.

Every cell that is executed with a number is a task `cell`, or one of the name after `%%flightlog`; what it
opens itself, spans and tasks and runs, stands inside. A cell behaves as it would have: whatever goes wrong
here is said once.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any

from flightlog.notebook.resting import WhileBusy
from flightlog.record.noop import NoopRun
from flightlog.record.recording import Recording, record
from flightlog.record.upkeep import make_samplers
from flightlog.record.values import text_of

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun
    from flightlog.record.task import TaskSpan
    from flightlog.samplers import Sampler

log = logging.getLogger("flightlog")

TASK = "cell"
NAMED = "%%flightlog"
SOURCE = 120
"""So many characters of a cell's first line are kept, without what is secret in them."""
READ = 10_000
"""So many characters of a cell are looked at for it."""
SAMPLE_S = 1.0


class CellRecorder:
    """Records cells between `start` and `stop`; the events of IPython's shell call `begin` and `end`.

    Runs one after the other may be recorded, each with its own name. At the end of the process an open run is
    closed.
    """

    def __init__(self, shell: Any, *, runs_dir: str | os.PathLike[str] | None = None) -> None:
        self._shell, self._runs_dir = shell, runs_dir
        self._recording: Recording | None = None
        self._open: dict[int, tuple[Any, TaskSpan]] = {}
        self._told = False
        self._next: int = shell.execution_count
        self._ahead: int | None = None
        self.run: LiveRun | None = None
        """The run that cells are recorded in; None where none is."""
        self.path: Path | None = None
        """The folder of the present run, or of the last one."""
        self.cells = 0
        """How many cells the present run has, or the last one."""

    def start(self, project: str | None = None) -> LiveRun | None:
        """End the run that is recorded, and begin another; None where recording is off or cannot begin."""
        self.stop()
        name = project or notebook_name(self._shell.user_ns, os.environ) or "notebook"
        self._recording = record(
            name,
            runs_dir=self._runs_dir,
            tags={"notebook": name},
            sample_interval_s=SAMPLE_S,
            samplers=[WhileBusy(self._samplers, lambda: bool(self._open))],
        )
        run = self._recording.__enter__()
        self.run = None if isinstance(run, NoopRun) else run
        self.path, self.cells = (run.path, 0) if self.run is not None else (self.path, 0)
        # Registered after the recording's own, and so called before it: an ended kernel is a run that
        # completed.
        atexit.register(self.stop)
        return self.run

    def stop(self) -> None:
        """End the run as completed; what its cells failed with is told of each. Nothing where none is
        recorded.
        """
        recording, self._recording, self.run = self._recording, None, None
        if recording is None:
            return
        atexit.unregister(self.stop)
        for _, task in list(
            self._open.values()
        ):  # the cell that asks for the end, or one that never came to its own
            self._close(task, None)
        self._open.clear()
        recording.__exit__(None, None, None)

    def begin(self, info: Any = None) -> None:
        """A cell begins: `pre_run_cell`. One that is not numbered, such as a front end's own question, is no
        task.
        """
        try:
            run = self.run
            if run is None or info is None or not getattr(info, "store_history", False):
                return
            name, first = read_cell(info.raw_cell)
            task = run.task(name, n=self._number(), source=first)
            task.__enter__()
            self._open[id(info)] = info, task
            self.cells += 1
        except Exception as error:  # noqa: BLE001 - a cell is executed whether it can be recorded or not
            self._tell(error)

    def end(self, result: Any = None) -> None:
        """A cell ended: `post_run_cell`. Without a result, as after an interrupted `await`, it is one that
        was given up.
        """
        try:
            self._next = self._shell.execution_count
            if result is None:
                _, (_, task) = self._open.popitem() if self._open else (0, (None, None))
                error: BaseException | None = KeyboardInterrupt()
            else:
                _, task = self._open.pop(id(result.info), (None, None))
                error = result.error_before_exec or result.error_in_exec
            if task is not None:
                self._close(task, error)
        except Exception as problem:  # noqa: BLE001 - the cell is over, and its result is the user's
            self._tell(problem)

    def strip_name(self, lines: list[str]) -> list[str]:
        """For IPython's input: the line that names the cell is a comment, and the others keep their numbers.

        Before a cell magic, which has to stand first, it is left out.
        """
        at = next((number for number, line in enumerate(lines) if line.strip()), None)
        if at is None or lines[at].split(None, 1)[0] != NAMED:
            return lines
        then = next((n for n, line in enumerate(lines) if n > at and line.strip()), None)
        if then is not None and lines[then].startswith("%%"):
            return lines[then:]
        return [*lines[:at], f"# {lines[at].lstrip()}", *lines[at + 1 :]]

    def _number(self) -> int:
        """The number of the cell that begins. Some versions of IPython have counted it by now, some count it
        later.
        """
        count: int = self._shell.execution_count
        if self._ahead is None:
            self._ahead = int(count > self._next)
        return count - self._ahead

    def _samplers(self) -> Sequence[Sampler] | None:
        return None if self.run is None else make_samplers(self.run, None)

    def _close(self, task: TaskSpan, error: BaseException | None) -> None:
        if isinstance(error, type):  # IPython gives the class where it has no more
            error = error()
        trace: TracebackType | None = error.__traceback__ if error is not None else None
        task.__exit__(type(error) if error is not None else None, error, trace)

    def _tell(self, error: BaseException) -> None:
        if not self._told:
            self._told = True
            with suppress(Exception):
                log.warning("a cell could not be recorded, and was executed all the same: %s", text_of(error))


def read_cell(source: str) -> tuple[str, str]:
    """The name of a cell's task, and the first line of its code that says something; secrets are taken out
    later.
    """
    rest = source[:READ].lstrip()
    name = TASK
    first, _, after = rest.partition("\n")
    if first.split(None, 1)[:1] == [NAMED]:
        name, rest = first[len(NAMED) :].strip()[:SOURCE] or TASK, after
    line = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    return name, line[:SOURCE]


def notebook_name(names: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """What the notebook's file is called, where its front end tells; None where it does not."""
    told: Sequence[Any] = (names.get("__vsc_ipynb_file__"), environ.get("JPY_SESSION_NAME"))
    for path in told:
        if isinstance(path, str) and path:
            return PurePosixPath(path.replace("\\", "/")).stem or None
    return None
