"""`%load_ext flightlog`: cells recorded as tasks of a run, and the `%flightlog` magic."""

from __future__ import annotations

import atexit
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from flightlog.core.displayed import Displayed
from flightlog.core.errors import FlightlogError
from flightlog.core.text import plural
from flightlog.events.declarations import ResourceSample
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.live import display_here, follow
from flightlog.record.background import make_samplers
from flightlog.record.recording import NoopRun, Recording, record
from flightlog.record.values import text_of
from flightlog.samplers import Sampler
from flightlog.show.document import Block, Paragraph, Verbatim
from flightlog.show.terminal import clean

if TYPE_CHECKING:
    from flightlog.record.run import LiveRun
    from flightlog.record.task import TaskSpan

_LOADED = "_flightlog_cells"


def load(shell: Any) -> None:
    """Begin a run, and record every cell after this one; loading twice has no further effect."""
    if getattr(shell, _LOADED, None) is not None:
        return
    cells = CellRecorder(shell)
    setattr(shell, _LOADED, cells)
    shell.events.register("pre_run_cell", cells.begin)
    shell.events.register("post_run_cell", cells.end)
    shell.input_transformers_cleanup.insert(0, cells.strip_name)
    shell.register_magic_function(Magic(cells), "line", "flightlog")
    display_here(begun(cells.start()))


def unload(shell: Any) -> None:
    """End the run, and leave the shell as it was."""
    cells = getattr(shell, _LOADED, None)
    if cells is None:
        return
    setattr(shell, _LOADED, None)
    shell.events.unregister("pre_run_cell", cells.begin)
    shell.events.unregister("post_run_cell", cells.end)
    if cells.strip_name in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(cells.strip_name)
    shell.magics_manager.magics["line"].pop("flightlog", None)
    cells.stop()


log = logging.getLogger("flightlog")

TASK = "cell"
NAMED = "%%flightlog"


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
            sample_interval_s=NotebookLimits.sample_interval_s,
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
        """End the run as completed; failed cells are recorded as such. Does nothing without a run."""
        recording, self._recording, self.run = self._recording, None, None
        if recording is None:
            return
        atexit.unregister(self.stop)
        # The cell that asks for the end, or one that never came to its own.
        for _, task in list(self._open.values()):
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
    """The name of a cell's task, and the first meaningful line of its code; secrets are redacted later."""
    rest = source[: NotebookLimits.max_cell_searched_chars].lstrip()
    name = TASK
    first, _, after = rest.partition("\n")
    if first.split(None, 1)[:1] == [NAMED]:
        name, rest = first[len(NAMED) :].strip()[: NotebookLimits.max_cell_source_chars] or TASK, after
    line = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    return name, line[: NotebookLimits.max_cell_source_chars]


def notebook_name(names: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """The name of the notebook's file, if the front end provides it; else None."""
    told: Sequence[Any] = (names.get("__vsc_ipynb_file__"), environ.get("JPY_SESSION_NAME"))
    for path in told:
        if isinstance(path, str) and path:
            return PurePosixPath(path.replace("\\", "/")).stem or None
    return None


class WhileBusy:
    """A run's samplers as one, whose samples are kept while a cell runs and once after; others are dropped.

    They are taken all the same, so that rates cover the last second and not the whole pause. `make` returns
    the samplers, or None while it cannot. One that raises is not used again.
    """

    def __init__(self, make: Callable[[], Sequence[Sampler] | None], is_busy: Callable[[], bool]) -> None:
        self._make, self._is_busy, self._was_busy = make, is_busy, True
        self._samplers: list[Sampler] | None = None

    @property
    def notes(self) -> Sequence[str]:
        """What the samplers complain of."""
        return [text for sampler in self._samplers or () for text in getattr(sampler, "notes", ())]

    def sample(self) -> Sequence[ResourceSample]:
        """What there is to say at this moment; nothing in a rest."""
        busy, before = self._is_busy(), self._was_busy
        self._was_busy = busy
        found = list(self._taken("sample"))
        return found if busy or before else ()

    def last_sample(self) -> Sequence[ResourceSample]:
        """What there is to say at the end."""
        return list(self._taken("last_sample"))

    def close(self) -> None:
        """Let go of what the samplers hold."""
        for sampler in self._samplers or ():
            close = getattr(sampler, "close", None)
            if close is not None:
                close()

    def _taken(self, how: str) -> Iterator[ResourceSample]:
        if self._samplers is None:
            made = self._make()
            if made is None:
                return
            self._samplers = list(made)
        for sampler in list(self._samplers):
            try:
                yield from getattr(sampler, how, sampler.sample)()
            except Exception as error:  # noqa: BLE001 - a sampler that fails is left out, the others go on
                self._samplers.remove(sampler)
                log.warning("sampler %s failed and is left out: %r", type(sampler).__name__, error)


HELP = """%flightlog                 status of the recording
%flightlog start [NAME]    end the run that is recorded, and begin another
%flightlog stop            end the run
%flightlog report [RUN]    the report of a run; without a name that of this notebook
%flightlog top [RUN]       follow a run until it ends; Interrupt stops looking
%%flightlog NAME           first line of a cell: its task has this name"""


class Magic:
    """The line magic. Returns what to display; an invalid command is answered with a
    message, never raised.
    """

    def __init__(self, cells: CellRecorder, *, follow: Callable[[Any], None] = follow) -> None:
        self._cells, self._follow = cells, follow

    def __call__(self, line: str) -> object:
        """Execute the command."""
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        wish, rest = (words[0], words[1:]) if words else ("status", [])
        wishes: dict[str, Callable[[list[str]], object]] = {
            "status": self._status,
            "start": self._start,
            "stop": self._stop,
            "report": self._report,
            "top": self._top,
            "help": lambda _rest: MagicAnswer(HELP),
        }
        if wish not in wishes or len(rest) > (wish in {"start", "report", "top"}):
            return MagicAnswer(f"%flightlog {line.strip()[:80]} is not understood.\n{HELP}")
        try:
            return wishes[wish](rest)
        except FlightlogError as error:
            return MagicAnswer(str(error))

    def _status(self, _rest: list[str]) -> MagicAnswer:
        cells = self._cells
        if cells.run is None:
            last = f" The last run is {cells.path}." if cells.path is not None else ""
            return MagicAnswer(f"No cell is being recorded; `%flightlog start` begins a run.{last}")
        return self._recorded()

    def _start(self, rest: list[str]) -> MagicAnswer:
        return begun(self._cells.start(rest[0] if rest else None))

    def _stop(self, _rest: list[str]) -> MagicAnswer:
        if self._cells.run is None:
            return MagicAnswer("No cell is being recorded.")
        self._cells.stop()
        return self._recorded()

    def _recorded(self) -> MagicAnswer:
        cells, path = self._cells.cells, self._cells.path
        if path is None or not path.is_dir():
            return MagicAnswer(
                f"{path} cannot be written: {plural(cells, 'cell')} executed and not recorded."
            )
        return MagicAnswer(f"{plural(cells, 'cell')} recorded in {path}")

    def _report(self, rest: list[str]) -> object:
        from flightlog.analyze.report.report import report_on
        from flightlog.store.completing import open_run
        from flightlog.store.earlier_runs import EarlierRuns

        run = open_run(rest[0] if rest else self._cells.path or "latest")
        return report_on(run, history=EarlierRuns(run))

    def _top(self, rest: list[str]) -> None:
        self._follow(rest[0] if rest else self._cells.path or "latest")


class _Said(NamedTuple):
    words: str


class MagicAnswer(Displayed, _Said):
    """Words that show themselves as they are, in a console and in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self.words


def begun(run: LiveRun | None) -> MagicAnswer:
    """The message about a run that was to begin."""
    if run is None:
        return MagicAnswer("Recording is off, or could not begin: cells are executed and not recorded.")
    if not run.path.is_dir():
        return MagicAnswer(f"{run.path} cannot be written: cells are executed and not recorded.")
    return MagicAnswer(f"The cells from the next one on are recorded in {run.path}")


def note_display(note: MagicAnswer) -> list[Block]:
    """The words; several lines, as of a help, in columns."""
    lines = [clean(one) for one in note.words.splitlines()]
    return [Verbatim("\n".join(lines)) if len(lines) > 1 else Paragraph(note.words)]
