"""A live run, in the process that made it or in one that joined: what `flightlog.record` gives."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from msgspec.structs import asdict

from flightlog.core import threads
from flightlog.core.displayed import Displayed
from flightlog.core.interruption import pass_interruption
from flightlog.events import ArtifactRecorded, Event, Failure, UserEvent, WorkerReady, WorkerRemoved
from flightlog.record.clock import monotonic_ns
from flightlog.record.failure import FailureText, describe, tell_out_of_memory
from flightlog.record.fast_values import are_harmless
from flightlog.record.recorder import Recorder
from flightlog.record.span import RootSpan, RunSpan, Span, current
from flightlog.record.subscribers import Callback
from flightlog.record.task import TaskSpan, lane_name
from flightlog.record.values import bounded, clean, encodable, text_of
from flightlog.store.layout import RunInfo
from flightlog.store.readable import Readable

if TYPE_CHECKING:
    import hashlib

    from flightlog.core.alerts import Alert
    from flightlog.store.read.follow import Kinds
    from flightlog.store.read.lines import AnyEvent
    from flightlog.store.run import Run


class LiveRun(Displayed, Readable):
    """A run that is being recorded. Every method may be called from any thread at any time; none of them
    raises, but those that read the run.
    """

    learns_events: ClassVar[bool] = False  # a name that is taken could not be defined by the program any more

    def __init__(self, path: Path, info: RunInfo, recorder: Recorder) -> None:
        self.path, self.info, self.recorder = path, info, recorder
        self.metric = recorder.metric  # no call in between
        self.root: Span = RootSpan(recorder, info.trace_id, info.span_id)
        self.started_ns = monotonic_ns()
        self.taken_over = False
        """Whether another process made the run and left it to this one, as a daemon's does."""
        self._lanes: dict[str, int] = {}
        self._lanes_lock = threads.RLock()  # a signal handler may end the run in the middle of it
        self._on_fork: list[Callable[[], None]] = []
        self._on_end: list[Callable[[str], None]] = []
        self.before_reading: list[Callable[[], object]] = []
        """What brings lines into the directory that have come here and are not written yet."""

    def __repr__(self) -> str:
        return f"LiveRun({str(self.path)!r})"

    @property
    def run_id(self) -> str:
        """The run's name, which is its folder's."""
        return self.info.run_id

    @property
    def owned(self) -> bool:
        """Whether this process made the run, or has taken it over, so that its end is the run's."""
        return self.recorder.files.info.owner or self.taken_over

    def opened(self) -> Run:
        """The run as it is now, with everything that was recorded before; raises as `open_run` does."""
        from flightlog.store.completing import open_run

        for bring_in in list(self.before_reading):
            bring_in()
        return open_run(self.path)

    def task(self, name: str, /, **args: Any) -> TaskSpan:
        """A task to use with `with`: submitted and started now, completed or failed when the block ends."""
        return TaskSpan(self, name if type(name) is str else text_of(name), args)

    def span(self, name: str, /, **tags: Any) -> Span:
        """As `flightlog.span`, and of this run wherever it is opened."""
        return RunSpan(self.root, name if type(name) is str else text_of(name), tags)

    def emit(self, event: Event, *more: Event) -> None:
        """Record an event as it is, or several at once, which costs a fraction of one by one."""
        if more:
            self.recorder.emit_all((event, *more))
        else:
            self.recorder.emit(event)

    def event(self, name: str | Event, /, **fields: Any) -> None:
        """Record something worth remembering: a name with fields, or an event defined with `define_event`."""
        if issubclass(type(name), Event):
            self.emit(cast(Event, name))
            return
        if not are_harmless(fields, {}):
            fields, marks = clean(fields)
            if marks:
                fields["nonfinite"] = marks
        self.emit(UserEvent(name=text_of(name), fields=fields, span_id=self._here()))

    def record_artifact(
        self,
        target: str | os.PathLike[str],
        *,
        kind: str | None = None,
        name: str | None = None,
        **metadata: Any,
    ) -> None:
        """Register an output, with its size and SHA-256 as they are now: a path, or an address as it is."""
        try:
            artifact = describe_artifact(target, kind, name)
            artifact.metadata, _ = clean(metadata)
            artifact.span_id = self._here()
            self.emit(artifact)
        except BaseException as error:  # noqa: BLE001 - nothing on the recording path reaches the user's code
            pass_interruption(error)
            self.recorder.count("events_failed")
            self.recorder.trouble("artifact", f"an artifact could not be recorded: {text_of(error)}")

    def note_failure(self, error: BaseException, scope: Literal["run", "task"], **facts: Any) -> FailureText:
        """Record an exception with its traceback; gives its description."""
        text = describe(error)
        known = {key: facts[key] for key in ("task", "task_id") if key in facts}
        tell_out_of_memory(self.recorder, error, **known)
        self.emit(Failure(scope=scope, **asdict(text), **facts))
        return text

    def subscribe(
        self,
        callback: Callback,
        events: Kinds | None = None,
        *,
        where: Callable[[AnyEvent], object] | None = None,
        batch: bool = False,
        capacity: int | None = None,
    ) -> Callable[[], None]:
        """Deliver what any process of the run records from now on, as `follow` gives it: in order, each event
        once, within half a second.

        A function is called on a thread of its own. A coroutine function runs on the event loop that runs
        now, one call at a time, without keeping the loop from its other work; where no loop runs, on one of
        its own. What a function returns is awaited there, too, if it can be. With `batch` it is given a list
        of events, as many as have come. Who is slow falls behind and misses nothing, unless a `capacity` says
        how many events may wait: later ones are then dropped. The end of the run waits for subscribers for
        some seconds; what they missed is counted.

        Gives the function that unsubscribes, which delivers what is waiting first.
        """
        try:
            return self.recorder.subscribers.add(callback, events, where, batch, capacity)
        except BaseException as error:  # noqa: BLE001 - whatever was given for events
            pass_interruption(error)
            self.recorder.trouble("subscribe", f"a subscriber could not be taken: {text_of(error)}")
            return lambda: None

    def alert(
        self, rule: str, callback: Callable[[Alert], object] | None = None, *, every: str | float = "1h"
    ) -> None:
        """Call a function, on a thread of its own, when a rule of `flightlog alert` holds for the run;
        without a function the alert is logged.

        A process beside the run looks for it. It is told at most once per cause and period, `every`: an age
        such as `10m`, or seconds. A rule that makes no sense is a warning.
        """
        try:
            from flightlog.record.alerts import listener_of

            listener_of(self).ask(rule, callback, every)
        except BaseException as error:  # noqa: BLE001 - whatever was given
            pass_interruption(error)
            self.recorder.trouble("alert", f"an alert could not be taken: {text_of(error)}")

    def lane(self) -> str:
        """The worker this thread is; known to the run from its first task on."""
        name = lane_name(self.recorder.host, os.getpid())
        if name not in self._lanes:
            with self._lanes_lock:
                if name not in self._lanes:
                    main = self.info.pid == os.getpid() and threads.in_main_thread()
                    since = self._lanes[name] = self.started_ns if main else monotonic_ns()
                    at = self.recorder.clock.iso(since)
                    self.recorder.emit(WorkerReady(timestamp=at, **self._worker(name)))
        return name

    def _worker(self, name: str) -> dict[str, Any]:
        return {"worker": name, "host": self.recorder.host, "pid": os.getpid()}

    def end_lanes(self) -> None:
        """Say that the workers of this process are done."""
        with self._lanes_lock:
            lanes, self._lanes = self._lanes, {}
        for name, since in lanes.items():
            uptime_s = (monotonic_ns() - since) / 1e9
            self.recorder.emit(
                WorkerRemoved(reason="recording ended", uptime_s=uptime_s, **self._worker(name))
            )

    def on_end(self, action: Callable[[str], None]) -> None:
        """Do something before the run ends, while it still records; it is told the status."""
        self._on_end.append(action)

    def ending(self, status: str) -> None:
        """Do what is to be done before the run ends."""
        actions, self._on_end = self._on_end, []
        for action in actions:
            action(status)

    def on_fork(self, action: Callable[[], None]) -> None:
        """Do something more in a forked child."""
        self._on_fork.append(action)

    def after_fork(self) -> None:
        """Go on as a writer of its own in a forked child."""
        self._lanes, self._lanes_lock = {}, threads.RLock()
        self.before_reading = []
        self.recorder.after_fork()
        for action in self._on_fork:
            action()

    def _here(self) -> str | None:
        here: Span | None = current.get()
        return here.span_id if here is not None and here._sink is not None else None


_ADDRESS = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")


def describe_artifact(target: str | os.PathLike[str], kind: str | None, name: str | None) -> ArtifactRecorded:
    """What can be said of a file, a folder or an address.

    A folder's checksum covers the names, sizes and contents of all files in it, in order of name. What cannot
    be read has a null size and says why. Takes as long as reading it does.
    """
    text = os.fspath(target)
    if _ADDRESS.match(text) and not text.startswith("file://"):
        label = name or text.rstrip("/").rpartition("/")[2] or text
        return ArtifactRecorded(
            name=bounded(label), uri=bounded(text), kind=kind, size_bytes=None, sha256=None
        )
    path = Path(text.removeprefix("file://")).absolute()
    facts: dict[str, Any] = {"size_bytes": None, "sha256": None}
    try:
        if path.is_dir():
            facts = _describe_folder(path)
        elif path.is_file() or not path.exists():
            facts = {"size_bytes": path.stat().st_size, "sha256": _digest(path).hexdigest()}
        else:  # reading it might never end
            facts["error"] = f"neither a file nor a folder: {encodable(str(path))}"
    except OSError as error:
        facts["error"] = f"{error.strerror or error}: {encodable(str(path))}"
    return ArtifactRecorded(name=encodable(name or path.name), uri=encodable(str(path)), kind=kind, **facts)


def _describe_folder(folder: Path) -> dict[str, Any]:
    import hashlib

    whole = hashlib.sha256()
    files = size = 0
    for base, folders, names in os.walk(folder):
        folders.sort()
        for path in filter(Path.is_file, (Path(base, name) for name in sorted(names))):
            files += 1
            length = path.stat().st_size
            size += length
            entry = f"{path.relative_to(folder).as_posix()}\0{length}\0{_digest(path).hexdigest()}\n"
            whole.update(entry.encode("utf-8", "surrogateescape"))
    return {"size_bytes": size, "sha256": whole.hexdigest(), "files": files}


def _digest(path: Path) -> hashlib._Hash:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
