"""A session: a manifest, a target, an engine and a client, recorded as one run."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from msgspec.structs import asdict

from flightlog.core import threads
from flightlog.core.alerts import AlertEntry
from flightlog.core.displayed import Displayed
from flightlog.core.errors import UsageError
from flightlog.core.settings import read_settings
from flightlog.core.text import plural
from flightlog.engines.contract import Engine
from flightlog.engines.program import refuse_while_main_is_imported
from flightlog.events import ResourceRequest
from flightlog.record.background import save_run
from flightlog.record.environment import Environment, read_environment
from flightlog.record.recording import NoopRun, record, settle_signals
from flightlog.record.run import LiveRun
from flightlog.record.worker_costs import WorkerCosts
from flightlog.session.charges import charges_of
from flightlog.session.client import Client
from flightlog.session.limits import SessionLimits
from flightlog.session.lock import make_lock
from flightlog.session.manifest import Manifest, load_manifest, pick_target
from flightlog.session.otel_config import send_while_running
from flightlog.session.overlay import pick_overlay
from flightlog.session.plan import History, make_plan, read_history
from flightlog.session.schema import Contents
from flightlog.session.secrets import without_secrets
from flightlog.session.task_options import TaskDefaults
from flightlog.session.tracking import Counts, Tracker
from flightlog.store import layout
from flightlog.store.documents import replace_bytes, write_document
from flightlog.store.run import Run

if TYPE_CHECKING:
    from flightlog.analyze.predict.eta import Eta
    from flightlog.session.asynchronous import OwnThread

log = logging.getLogger("flightlog")


class SessionState(NamedTuple):
    """A session at a moment; None is what there is not, or not yet."""

    state: Literal["not started", "open", "closed"]
    project: str
    run_id: str | None
    path: Path | None
    counts: Counts | None
    eta: Eta | None
    failures: list[str]
    """A line for each of the first tasks that failed for good, and not because they depend on another."""


class RunAccess:
    """What is recorded as a run, which `telemetry` gives: its name and directory."""

    @property
    def telemetry(self) -> LiveRun:
        """The run: `subscribe`, `emit`, `event`, `metric`, `task`. One that does nothing where nothing is
        recorded.
        """
        raise NotImplementedError

    @property
    def run_id(self) -> str:
        """The run's name; `not-recorded` where nothing is."""
        return self.telemetry.run_id

    @property
    def path(self) -> Path:
        """The run directory; a path at which there is nothing where nothing is recorded."""
        return self.telemetry.path


class Session(Displayed, RunAccess):
    """Runs functions and commands where a manifest says, and records everything by itself.

    Use it with `with` or `async with`; or call `start` and `close`. What is used before `start` starts it,
    and a session that is open when the program ends is closed then. Leaving the block cancels tasks that have
    not ended: gather first. The run ends as the block did: an exception makes it `failed`, Ctrl-C
    `interrupted`. Where recording is switched off, or cannot be, sessions work all the same.
    """

    def __init__(
        self,
        manifest: Manifest | str | os.PathLike[str] | None = None,
        *,
        target: str | None = None,
        overlay: str | os.PathLike[str] | None = None,
        runs_dir: str | os.PathLike[str] | None = None,
        tags: Mapping[str, Any] | None = None,
        sample_interval_s: float | None = 1.0,
        progress: bool | None = None,
        engine: Engine | Executor | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Read the manifest and pick the target; nothing is started yet.

        `manifest` and `target` as in `from_yaml`. `overlay` is laid over the manifest last: one of its own by
        name, or a file; by default the one that `FLIGHTLOG_OVERLAY` names. `runs_dir`, `tags` and
        `sample_interval_s` are those of `flightlog.record`. `progress=False` shows no bar on a terminal
        either. `engine` runs the tasks in place of the target's own; an executor such as that of
        `concurrent.futures` or `mpi4py.futures` may be given, too. A manifest or target that makes no sense
        is a `UsageError` or a `ManifestError`.
        """
        environ = os.environ if environ is None else environ
        if not isinstance(manifest, Manifest):
            manifest = load_manifest(None if manifest is None else Path(manifest))
        written = manifest
        self.target = pick_target(written, target, environ)
        self.manifest = pick_overlay(written, self.target, overlay, environ)
        self._contents = self.manifest.resolved(environ, self.target)
        if isinstance(engine, Executor):
            from flightlog.engines.executor import ExecutorEngine

            engine = ExecutorEngine(engine)
        own: str | None = getattr(engine, "provider", None)
        self.provider = own or self._contents.targets[self.target].provider
        self._engine, self._environ, self._progress = engine, environ, progress
        self._costs = WorkerCosts(charges_of(self._contents, self.target, self.manifest.path.parent, environ))
        self._recording = record(
            self._contents.project.name,
            runs_dir=runs_dir,
            tags=tags,
            sample_interval_s=sample_interval_s,
            target=self.target,
            provider=self.provider,
        )
        self._run: LiveRun | None = None
        self._tracker: Tracker | None = None
        self._client: Client | None = None
        self._documents: RunDocuments | None = None
        self._thread: OwnThread | None = None
        self._closed = False
        self._pid = 0

    @classmethod
    def from_yaml(
        cls, path: str | os.PathLike[str] | None = None, *, target: str | None = None, **options: Any
    ) -> Self:
        """The session of a manifest file (default: `flightlog.yaml` here or above), on one of its targets.

        Without `target`: the one that `FLIGHTLOG_TARGET` names, that of Slurm where Slurm is, `local`, or the
        only one. `options` are those of the class.
        """
        return cls(path, target=target, **options)

    def start(self) -> Self:
        """Begin the run and start the engine. Once: a session that was closed is a `UsageError`.

        So is one in a program whose main module a worker process imports, and which is not guarded against
        that.
        """
        if self._closed:
            raise UsageError("the session was closed: make a new one")
        if self._client is not None:
            return self
        refuse_while_main_is_imported("a session")
        self._pid = os.getpid()
        self._run = run = self._recording.__enter__()
        try:
            self._open(None if isinstance(run, NoopRun) else run)
        except BaseException as error:
            self._closed = True
            self._recording.__exit__(type(error), error, error.__traceback__)
            raise
        if "multiprocessing" in sys.modules:
            # It registers a function that waits for all children, when this is imported: ours must come
            # later, for the last one registered is called first.
            import_module("multiprocessing.util")
        atexit.register(self._at_exit)
        return self

    def close(self, error: BaseException | None = None) -> None:
        """End the engine and the run, as the error says; again, it does nothing. Tasks that have not ended
        are cancelled.
        """
        if self._was_open():
            try:
                self._end_tasks(error)
            finally:
                self._end_run(error)

    @property
    def client(self) -> Client:
        """Hands tasks to the engine."""
        self.start()
        assert self._client is not None
        return self._client

    @property
    def telemetry(self) -> LiveRun:
        """As of `RunAccess`; the session is started if it was not."""
        if self._run is None:
            self.start()
        assert self._run is not None
        return self._run

    def __repr__(self) -> str:
        return f"<session of {self._contents.project.name} on {self.target}>"

    def seen(self) -> SessionState:
        """How the session stands. Starts nothing and waits for nothing."""
        tracker, client = self._tracker, self._client
        run = None if isinstance(self._run, NoopRun) else self._run
        return SessionState(
            state="closed" if self._closed else "not started" if client is None else "open",
            project=self._contents.project.name,
            run_id=run.run_id if run is not None else None,
            path=run.path if run is not None else None,
            counts=tracker.counts if tracker is not None else None,
            eta=client.eta() if client is not None and not self._closed else None,
            failures=list(tracker.failures) if tracker is not None else [],
        )

    def record_artifact(
        self,
        target: str | os.PathLike[str],
        *,
        kind: str | None = None,
        name: str | None = None,
        **metadata: Any,
    ) -> None:
        """Register an output of the run: a file, a folder or an address."""
        self.telemetry.record_artifact(target, kind=kind, name=name, **metadata)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close(error)

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await self.aclose(error)

    async def astart(self) -> Self:
        """As `start`; the event loop goes on meanwhile. Cancelled, it closes the session again."""
        from asyncio import CancelledError

        try:
            await self._own_thread().run(self.start)
        except CancelledError as error:
            await self.aclose(error)
            raise
        settle_signals()
        return self

    async def aclose(self, error: BaseException | None = None) -> None:
        """As `close`; the event loop goes on meanwhile."""
        thread = self._own_thread()
        try:
            await thread.run(self.close, error)
        finally:
            settle_signals()
            thread.end()
            self._thread = None

    def _own_thread(self) -> OwnThread:
        from flightlog.session.asynchronous import OwnThread

        self._thread = self._thread or OwnThread()
        return self._thread

    def _was_open(self) -> bool:
        """Whether there is something to end here; the session is closed from now on."""
        closed, self._closed = self._closed, True
        return not closed and self._client is not None and not self._is_elsewhere()

    def _open(self, run: LiveRun | None) -> None:
        contents, began = self._contents, time.monotonic()
        recorder = run.recorder if run is not None else None
        # Ids of tasks that nobody records are unique within the session.
        own_ids = map("{:016x}".format, count(1))
        next_id = recorder.next_id if recorder is not None else own_ids.__next__
        if self._engine is None:
            from flightlog.engines import make_engine

            needs = {name: component.needs for name, component in contents.components.items()}
            self._engine = make_engine(self.provider, contents.targets[self.target].options, needs)
        if run is not None:
            self._documents = RunDocuments(run, self.manifest, self.target, contents, self._environ)
            for event in self._costs.begin():
                run.emit(event)
            send_while_running(run.path, contents.otel, self._environ)
            if contents.alerts:
                from flightlog.record.alerts import watch_entries

                watch_entries(run, self._alerts(), self._environ)
        self._tracker = Tracker(self._engine, recorder, next_id, self._costs)
        if run is not None:
            run.on_end(self._run_ends)
        self._engine.start(str(run.path) if run is not None else None, self._tracker)
        written = self.manifest.resolved(self._environ, self.target, raw=True)
        defaults = TaskDefaults(contents, self.manifest.path.parent, self._environ, written)
        self._client = Client(self._tracker, run, defaults, next_id, self._progress)
        if run is not None:
            run.info.engine_start_s = time.monotonic() - began

    def _alerts(self) -> list[AlertEntry]:
        """What the manifest asks to be told of; functions stand beside it."""
        folder = str(self.manifest.path.parent)
        return [
            AlertEntry(
                when=one.when,
                every="1h" if one.every_s is None else f"{one.every_s:f}s",
                command=one.command,
                webhook=one.webhook,
                notify=one.notify,
                python=one.python,
                folder=folder,
            )
            for one in self._contents.alerts
        ]

    def _run_ends(self, status: str) -> None:
        """The run ends before the session does: a signal ends the process. Every task still gets its end."""
        if not self._closed and self._tracker is not None and not self._is_elsewhere():
            self._closed = True
            # On a thread of its own: the signal may have met this one with the tracker's lock in its hands.
            closing = threading.Thread(
                target=self._tracker.close,
                args=(f"the run ended as {status}", SessionLimits.hasty_close_timeout_s),
                daemon=True,
            )
            closing.start()
            closing.join(2 * SessionLimits.hasty_close_timeout_s)

    def _end_tasks(self, error: BaseException | None) -> None:
        assert self._tracker is not None
        began = time.monotonic()
        if error is None:
            self._tracker.close("the session was closed", SessionLimits.close_timeout_s)
        else:
            why = f"the session ended with {type(error).__name__}"
            self._tracker.close(why, SessionLimits.hasty_close_timeout_s)
        if not isinstance(self.telemetry, NoopRun):
            self.telemetry.info.engine_end_s = time.monotonic() - began

    def _end_run(self, error: BaseException | None) -> None:
        assert self._tracker is not None
        atexit.unregister(self._at_exit)
        failed, failures = self._tracker.counts.failed, self._tracker.failures
        dependents = self._tracker.dependents_failed
        if failed:
            log.warning("%d of %d tasks failed:", failed, self._tracker.counts.submitted)
            for line in failures:
                log.warning("  %s", line)
            if failed - dependents > len(failures):
                log.warning("  … and %d more", failed - dependents - len(failures))
            if dependents:
                log.warning(
                    "  … and %s on them", plural(dependents, "task that depends", "tasks that depend")
                )
        if self._documents is not None and self._client is not None:
            self._documents.finish(self._client.functions)
            for estimate in self._costs.estimates():
                self.telemetry.emit(estimate)
        trace = error.__traceback__ if error is not None else None
        self._recording.__exit__(type(error) if error is not None else None, error, trace)
        if error is None and not isinstance(self.telemetry, NoopRun):
            self._tell_slowdown()

    def _tell_slowdown(self) -> None:
        """Say what the report will say first: that the run took longer than those before it, and why."""
        from flightlog.store.slowdown import slowdown_at_end

        try:
            slower = slowdown_at_end(Run(self.path))
        except Exception:
            log.debug("the run could not be compared with those before it", exc_info=True)
            return
        if slower is not None:
            log.warning("This run was %s", slower.sentence)

    def _is_elsewhere(self) -> bool:
        """Whether this is a forked child: engine, tasks and run are its parent's, and none of its
        business.
        """
        return self._pid != os.getpid()

    def _at_exit(self) -> None:
        """The program ends with the session open: with the error that ended it, if one did.

        At a prompt or in a notebook an error ends a line or a cell; the program that ends later ends in
        peace.
        """
        at_prompt = hasattr(sys, "ps1")
        self.close(None if at_prompt else getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))


class RunDocuments:
    """The documents of a session in its run directory. Nothing here raises: what cannot be written is said
    once.
    """

    def __init__(
        self, run: LiveRun, manifest: Manifest, target: str, contents: Contents, environ: Mapping[str, str]
    ) -> None:
        """Write the manifest and the plan now; what takes its time follows at once, on a thread.

        That is the plan with what history suggests, for which earlier runs are read, and the lock, for which
        git is asked.
        """
        self._run, self._manifest, self._contents = run, manifest, contents
        self._target, self._environ = target, environ
        self._environment: Environment | None = None
        self._guarded("manifest", self._write_manifest)
        self._guarded("plan", lambda: self._write_plan(None))
        if run.info.pid == os.getpid():
            run.info.manifest_hash = manifest.sha256
            save_run(run)
        requests = list(_requests(contents))
        if requests:
            run.emit(*requests)
        self._thread = threads.Thread(target=self._follow, name="flightlog-documents")
        self._thread.start()

    def _write_manifest(self) -> None:
        """Keep the text; its hash, by which runs are compared, is always that of the text as written."""
        as_written = read_settings(self._environ).manifest_as_written
        text = self._manifest.source if as_written else without_secrets(self._manifest.source)
        replace_bytes(self._run.path / layout.MANIFEST, text.encode())

    def finish(self, functions: Iterable[Callable[..., Any]]) -> None:
        """Write the lock again, with the functions that were run."""
        self._thread.join()
        self._guarded("lock", lambda: self._write_lock(functions))

    def _follow(self) -> None:
        self._guarded("lock", lambda: self._write_lock(()))
        self._guarded("plan", self._add_history)

    def _add_history(self) -> None:
        history = read_history(self._run.path.parent, self._contents.project.name)
        if history is not None:
            self._write_plan(history)

    def _write_plan(self, history: History | None) -> None:
        plan = make_plan(self._manifest, self._target, self._environ, history)
        write_document(self._run.path / layout.PLAN, plan)

    def _write_lock(self, functions: Iterable[Callable[..., Any]]) -> None:
        if self._environment is None:
            self._environment = read_environment(cwd=self._manifest.path.parent)
        whole = self._manifest.for_target(self._target, self._environ)
        lock = make_lock(whole, functions, self._environment, self._environ)
        write_document(self._run.path / layout.LOCK, lock)

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the session runs without its papers, too
            self._run.recorder.trouble(what, f"the {what} could not be written into the run: {error!r}")


def _requests(contents: Contents) -> Iterable[ResourceRequest]:
    """What each component asks for, and each task that the manifest gives a component."""
    wanted: list[tuple[str | None, str | None]] = [(None, name) for name in contents.components]
    wanted += [(task, entry.component) for task, entry in contents.tasks.items()]
    for task, name in wanted:
        if name is not None:
            needs = asdict(contents.components[name].needs)
            yield ResourceRequest(task=task, component=name, **needs)
