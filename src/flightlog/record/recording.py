"""`flightlog.record`: a run as a context manager or a decorator; a no-op where recording is off."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from flightlog.core.errors import RunNotFound, UsageError
from flightlog.core.interruption import HandlersWait, pass_interruption
from flightlog.core.settings import DEFAULT_RUNS_DIR, read_settings
from flightlog.core.threads import Thread, keep_changes, quick_handovers
from flightlog.record import span as spans
from flightlog.record.context import active_runs, join_with
from flightlog.record.failure import on_out_of_memory
from flightlog.record.limits import RecordLimits
from flightlog.record.span import NOOP, NoopSpan
from flightlog.record.values import ask
from flightlog.store.readable import Readable
from flightlog.store.runs_folder import address_of

if TYPE_CHECKING:
    from flightlog.record.joining import Joined
    from flightlog.record.lifecycle import OwnedRun
    from flightlog.record.run import LiveRun
    from flightlog.samplers import Sampler
    from flightlog.store.run import Run

log = logging.getLogger("flightlog")
F = TypeVar("F", bound=Callable[..., Any])


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function of a module above this one, which is loaded when it is called."""

    def call(*args: Any, **facts: Any) -> Any:
        return getattr(import_module(module), name)(*args, **facts)

    return call


# What spans and runs need of modules above them.
join_with(
    _later("flightlog.record.joining", "join_from_environment"), _later("flightlog.record.joining", "join")
)
on_out_of_memory(_later("flightlog.record.device.oom", "dump_error"))


class Recording:
    """A run to be recorded: a context manager, or a decorator that makes each call a run."""

    def __init__(
        self,
        project: str | None,
        runs_dir: str | os.PathLike[str] | None,
        tags: Mapping[str, Any],
        options: dict[str, Any],
    ):
        self._project, self._runs_dir, self._tags, self._options = project, runs_dir, tags, options
        self._owned: list[OwnedRun | Joined | None] = []

    def __enter__(self) -> LiveRun:
        before = len(self._owned)
        try:
            with HandlersWait(), quick_handovers():
                return self._begin()
        except BaseException as error:
            # A signal handler's: the block is not entered, so nobody will leave it.
            if len(self._owned) > before:
                self.__exit__(type(error), error, error.__traceback__)
            raise

    def _begin(self) -> LiveRun:
        settings = read_settings()
        for problem in settings.problems:
            log.warning("%s", problem)
        if not settings.enabled:
            if not active_runs():
                spans.set_mode(spans.OFF)
            self._owned.append(None)
            return cast("LiveRun", NoopRun())
        try:
            from flightlog.record.lifecycle import begin

            runs_dir = Path(self._runs_dir) if self._runs_dir is not None else None
            if address_of(self._runs_dir) is not None:
                log.warning(
                    "runs_dir is an address, and runs are recorded in a folder: this one goes to %s, and "
                    "`flightlog sync --to ADDRESS` copies it",
                    settings.runs_dir,
                )
                runs_dir = None
            owned = begin(settings, self._project, runs_dir, self._tags, self._options)
        except BaseException as error:
            pass_interruption(error)
            log.warning("recording could not start; the program goes on without it", exc_info=True)
            self._owned.append(None)
            return cast("LiveRun", NoopRun())
        self._owned.append(owned)
        return owned.run

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        owned = self._owned.pop() if self._owned else None
        if owned is None:
            return
        try:
            owned.end(error)
        except BaseException:
            owned.end(error)  # a signal handler's exception may strike before the end has begun
            raise

    def conclude(self, status: str, error: str | None = None) -> None:
        """End the run now, as code that knows better than an exception how it ended; leaving the block does
        no more.

        `status` is one of those of an ended run, `error` says why in a line. A run that was joined goes on.
        """
        owned = self._owned[-1] if self._owned else None
        if owned is not None:
            owned.conclude(status, error)

    async def __aenter__(self) -> LiveRun:
        return self.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        owned = self._owned[-1] if self._owned else None
        if owned is None or not owned.run.recorder.subscribers.need_this_loop():
            self.__exit__(*error)
        else:
            await self._end_in_thread(*error)

    async def _end_in_thread(self, *error: Any) -> None:
        """Leave the block on a thread, so that the event loop can run what subscribers are; also where this
        is cancelled.
        """
        import asyncio

        before = copy_context()
        context, cancelled = before.copy(), None
        thread = Thread(target=context.run, args=(self.__exit__, *error), name="flightlog-end")
        thread.start()
        while thread.is_alive():
            try:
                await asyncio.sleep(RecordLimits.loop_turn_s)
            except asyncio.CancelledError as cancellation:
                cancelled = cancellation
        keep_changes(before, context)
        settle_signals()
        if cancelled is not None:
            raise cancelled

    def __call__(self, function: F) -> F:
        """Each call of the function is a run."""
        if ask(inspect.isgeneratorfunction, function, otherwise=False) or ask(
            inspect.isasyncgenfunction, function, otherwise=False
        ):
            raise UsageError(
                f"{function.__qualname__} is a generator: when its run would end is not clear. "
                "Use `with flightlog.record(...)` inside it, or around what consumes it."
            )

        def anew() -> Recording:
            return Recording(self._project, self._runs_dir, self._tags, self._options)

        if ask(inspect.iscoroutinefunction, function, otherwise=False):

            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with anew():
                    return await function(*args, **kwargs)

            return cast(F, ask(functools.update_wrapper, coroutine, function, otherwise=coroutine))

        def plain(*args: Any, **kwargs: Any) -> Any:
            with anew():
                return function(*args, **kwargs)

        return cast(F, ask(functools.update_wrapper, plain, function, otherwise=plain))


def record(
    project: str | None = None,
    *,
    runs_dir: str | os.PathLike[str] | None = None,
    tags: Mapping[str, Any] | None = None,
    sample_interval_s: float | None = 1.0,
    samplers: Sequence[Sampler] | None = None,
    target: str | None = None,
    provider: str | None = None,
) -> Recording:
    """Record a run: `with flightlog.record("demo") as run:`, or `@flightlog.record("demo")` on a function.

    `project` names the run's folder (default: the script's name). `runs_dir` is where runs go (default:
    `FLIGHTLOG_RUNS_DIR`, else `.flightlog/runs`). `sample_interval_s` is how often the machine is sampled,
    0.1 s at the least, None for never. `samplers` replaces the installed ones. Recording never raises into
    the program.
    """
    options = {
        "sample_interval_s": sample_interval_s,
        "samplers": samplers,
        "target": target,
        "provider": provider,
    }
    if callable(project):  # `@flightlog.record` without parentheses
        return cast(Recording, Recording(None, None, {}, options)(project))
    return Recording(project, runs_dir, {} if tags is None else tags, options)


def settle_signals() -> None:
    """Watch for deadly signals as the runs of this process need it, where one was begun or ended on another
    thread than the main one; on that alone.
    """
    if (lifecycle := sys.modules.get("flightlog.record.lifecycle")) is not None:
        lifecycle.signals.settle()


class NoopRun(Readable):
    """Does nothing, keeps nothing, and has the interface of a run; to read it is a `RunNotFound`."""

    __slots__ = ()

    run_id = "not-recorded"
    path = DEFAULT_RUNS_DIR / run_id
    """Where there is nothing."""
    info = None

    def opened(self) -> Run:
        """There is none."""
        raise RunNotFound("nothing is recorded here: there is no run to read")

    def task(self, _name: str, /, **_args: Any) -> NoopSpan:
        """The no-op span."""
        return NOOP

    def span(self, _name: str, /, **_tags: Any) -> NoopSpan:
        """The no-op span."""
        return NOOP

    def emit(self, _event: object, *_more: object) -> None:
        """Nothing."""

    def event(self, _name: object, /, **_fields: Any) -> None:
        """Nothing."""

    def metric(self, _name: str, _value: float, step: int | None = None) -> None:
        """Nothing."""

    def record_artifact(self, _target: object, **_facts: Any) -> None:
        """Nothing."""

    def alert(self, _rule: str, _callback: object = None, **_options: object) -> None:
        """Nothing."""

    def subscribe(self, _callback: object, *_events: object, **_options: object) -> Callable[[], None]:
        """Nothing to deliver; gives an unsubscribe that does nothing."""
        return lambda: None
