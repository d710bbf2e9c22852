"""`session.client`: functions and commands in, futures out; and calls as they are recorded."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent import futures as standard
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from flightlog.core.descriptors import Descriptor, make_pipe
from flightlog.core.errors import CommandError, UsageError
from flightlog.core.redaction import has_own_patterns, is_secret_key, redact_command
from flightlog.core.text import signal_name
from flightlog.engines.contract import Work
from flightlog.record.command.child import OutputTail
from flightlog.record.context import ENVIRONMENT, RUN, TRACEPARENT, carrier, format_traceparent
from flightlog.record.run import LiveRun
from flightlog.record.span import current, current_span, find_parent
from flightlog.record.values import clean
from flightlog.samplers.usage import max_rss_bytes, own_peak_rss_bytes
from flightlog.session.call_wrapper import as_sent, call_around
from flightlog.session.futures import Completions, TaskFuture, on_last_end, pack
from flightlog.session.limits import SessionLimits
from flightlog.session.progress import shown
from flightlog.session.task_options import TaskDefaults, TaskOptions, TaskRequest
from flightlog.session.tracking import CommandOutput, Task, Tracker

if TYPE_CHECKING:
    from flightlog.analyze.predict.eta import Eta
    from flightlog.store.earlier_runs import EarlierRuns

_encode = msgspec.json.Encoder(order="deterministic").encode
_known: WeakKeyDictionary[Any, Parameters] = WeakKeyDictionary()
log = logging.getLogger("flightlog")
_ON_NOTHING: list[str] = []
_PR_SET_PDEATHSIG = 1


class Client:
    """Hands work to a session's engine. Every method may be called from any thread while the session is open.

    The names of a method's own keywords (`task`, `component`, `tag`, `key`, `retries`, `timeout`) are not
    passed on. A function that has a parameter of such a name gets it with `functools.partial(function,
    timeout=…)`.
    """

    def __init__(
        self,
        tracker: Tracker,
        run: LiveRun | None,
        defaults: TaskDefaults,
        next_id: Callable[[], str],
        progress: bool | None = None,
    ) -> None:
        self._tracker, self._run, self._defaults, self._next_id = tracker, run, defaults, next_id
        self._progress = progress
        self.functions: dict[Callable[..., Any], None] = {}
        """Every function that was submitted, in order."""
        self._keys: dict[str, object] = {}
        self._cancel_task = self._give_up  # one bound method for all futures
        self._last_place: tuple[str, dict[str, str]] = ("", {})
        self._earlier: EarlierRuns | None = None

    def submit(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        task: str | None = None,
        component: str | None = None,
        key: str | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        tag: str | None = None,
        **kwargs: Any,
    ) -> TaskFuture:
        """Run `function(*args, **kwargs)` as a task; gives its future at once.

        `task` is its name (default: the function's), by which the manifest's `tasks` says how it is run;
        whatever is given here wins. `component`, or `tag`, is the kind of worker. `key` is its id, unique
        within the run. `retries` is how many further attempts follow a failed one, `timeout` the seconds an
        attempt may take. Futures in the arguments stand for their results: the task waits for them. A
        coroutine function is awaited in the worker.
        """
        options = self._options(function, TaskRequest(task, component, tag, retries, timeout))
        made = self._make(function, options, args, kwargs, key)
        self._tracker.add((made,))
        return made.future

    def map(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        task: str | None = None,
        component: str | None = None,
        key: str | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        tag: str | None = None,
        **kwargs: Any,
    ) -> list[TaskFuture]:
        """A task for each set of arguments, up to the end of the shortest iterable; gives futures in their
        order.

        All tasks have the function's name, or `task`; `kwargs` go to each call. With a `key` their ids are
        `key[0]`, `key[1]`, … Where one call cannot be sent, those before it are cancelled, and the error is
        raised; with a `key` none is handed over before all are made, so that it can be given again.
        """
        request = TaskRequest(task, component, tag, retries, timeout)
        lots = self._hand_over(
            function, iterables, kwargs, request, key, SessionLimits.max_tasks_submitted_together
        )
        return [future for lot in lots for future in lot]

    async def amap(
        self,
        function: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        task: str | None = None,
        component: str | None = None,
        key: str | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        tag: str | None = None,
        **kwargs: Any,
    ) -> list[TaskFuture]:
        """As `map`; the event loop goes on meanwhile. Cancelled, it cancels the tasks it has handed over."""
        from flightlog.session.asynchronous import in_slices

        request = TaskRequest(task, component, tag, retries, timeout)
        at_once = SessionLimits.max_tasks_submitted_on_loop
        with closing(self._hand_over(function, iterables, kwargs, request, key, at_once)) as lots:
            return [future async for lot in in_slices(lots) for future in lot]

    def submit_command(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        task: str | None = None,
        component: str | None = None,
        key: str | None = None,
        retries: int | None = None,
        timeout: float | None = None,
        tag: str | None = None,
    ) -> TaskFuture:
        """Run a command, given by its words, as a task in a worker; its result is a `CommandOutput`.

        `cwd` is its working directory, `env` what is added to the worker's environment (and never recorded).
        Another exit code than 0 is a failure: the future raises `CommandError`.
        """
        words = command_words(command)
        folder = None if cwd is None else os.fspath(cwd)
        call = words, folder, None if env is None else dict(env)
        request = TaskRequest(task or command_name(words), component, tag, retries, timeout)
        options = self._options(run_words, request)
        made = self._make(run_words, options, call, {}, key, command_arguments(words, folder))
        self._tracker.add((made,))
        return made.future

    def gather(
        self, futures: Iterable[TaskFuture], errors: Literal["raise", "return"] = "raise"
    ) -> list[Any]:
        """The results, in the order of the futures, when all are there.

        With `errors="raise"` the first exception in that order is raised as soon as it is known, and the
        other tasks go on; with `"return"` exceptions stand in the places of results. A bar shows how far it
        is, on a terminal and in a notebook.
        """
        awaited = _checked(futures, errors)
        over = threading.Event()
        ended = on_last_end(len(awaited), over.set, errors)
        with shown(lambda: self._tracker.counts, self._progress, self.eta):
            for future in awaited:
                future.add_done_callback(ended)
            if awaited:
                over.wait()
            return [_result(future, errors) for future in awaited]

    async def agather(
        self, futures: Iterable[TaskFuture], errors: Literal["raise", "return"] = "raise"
    ) -> list[Any]:
        """As `gather`, without a bar; the event loop goes on meanwhile. Cancelled, it cancels the tasks, as
        `asyncio.gather` does.
        """
        from asyncio import CancelledError

        from flightlog.session.asynchronous import Signal, in_slices

        awaited, over = _checked(futures, errors), Signal()
        ended = on_last_end(len(awaited), over, errors)
        results = []
        try:
            async for future in in_slices(awaited):
                future.add_done_callback(ended)
            if awaited:
                await over.happened
            async for future in in_slices(awaited):
                if not future.done():  # one after it has failed
                    future.add_done_callback(end := Signal())
                    await end.happened
                results.append(_result(future, errors))
        except CancelledError:
            async for future in in_slices(awaited):
                future.cancel()
            raise
        return results

    def as_completed(self, futures: Iterable[TaskFuture], timeout: float | None = None) -> Completions:
        """The futures, each when it is done, for `for` or `async for`; a `TimeoutError` where that takes
        longer than so many seconds.
        """
        # No bar here: the code between two futures may print, and a bar would get in its way.
        return Completions(_checked(futures), timeout)

    def cancel(self, future: TaskFuture) -> bool:
        """Give a task up, also one that runs where the engine can end it; whether that is what becomes of
        it.
        """
        return future.cancel()

    def eta(self) -> Eta | None:
        """How long it still takes, for whoever draws; earlier runs are looked at when it is first asked
        for.
        """
        try:
            if self._earlier is None and self._run is not None:
                from flightlog.store.earlier_runs import EarlierRuns
                from flightlog.store.run import Run

                self._earlier = EarlierRuns(Run(self._run.path))
            return self._tracker.pace.eta(self._earlier)
        except Exception:  # noqa: BLE001 - a bar that does not know is better than one that falls over
            return None

    def _options(self, function: Callable[..., Any], request: TaskRequest) -> TaskOptions:
        """How all tasks of one call of a method are run. The function is remembered, unless it is ours."""
        if not callable(function):
            raise UsageError(f"{function!r} is no function: give one, and its arguments after it")
        if request.task is not None and (not isinstance(request.task, str) or not request.task):
            raise UsageError(f"task={request.task!r} is no text to call a task by")
        options = self._defaults.choose(request.task or task_name(function), request)
        if function is not run_words:
            with suppress(TypeError):  # a callable that cannot be hashed
                self.functions[function] = None
        return options

    def _make(
        self,
        function: Callable[..., Any],
        options: TaskOptions,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        key: str | None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Task:
        """A task that is run so; `arguments` is what is recorded as such, if not those of the call."""
        call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]] = function, args, kwargs
        if options.around:
            call = call_around, (options.around, *call), {}
        packing = time.perf_counter()
        packed = pack(*call, of=function, dumps=self._tracker.dumps)
        sent = packed.call if packed.awaited else as_sent(packed.call, options.preparation)
        packing = time.perf_counter() - packing
        shown_args = recorded(arguments if arguments is not None else named_arguments(function, args, kwargs))
        args_digest = digest(shown_args)
        span_id = self._next_id()
        parent_id, place = self._place()
        task_id = self._key(key) if key is not None else span_id  # the last that may fail: it takes the key
        work = Work(
            task_id=task_id,
            task=options.task,
            attempt=1,
            call=sent,
            args=shown_args,
            args_bytes=len(packed.call),
            submitted=time.time(),
            place=place,
            span_id=span_id,
            component=options.component,
            timeout_s=options.timeout_s,
        )
        return Task(
            work=work,
            trace_id=self._run.recorder.trace_id if self._run is not None else "",
            parent_id=parent_id,
            args_digest=args_digest,
            retries=options.retries,
            future=TaskFuture(task_id, options.task, self._cancel_task),
            depends_on=[one.task_id for one in packed.futures] if packed.futures else _ON_NOTHING,
            waits_for=tuple(packed.awaited),
            preparation=options.preparation,
            serialize_s=packing,
        )

    def _hand_over(
        self,
        function: Callable[..., Any],
        iterables: Sequence[Iterable[Any]],
        kwargs: Mapping[str, Any],
        request: TaskRequest,
        key: str | None,
        at_once: int,
    ) -> Generator[list[TaskFuture], None, None]:
        """Make the tasks of a `map` and hand so many over at a time: gives their futures, lot by lot.

        Where that is cut off, tasks that were handed over are cancelled. With a key, all are made first;
        where one of them cannot be, their keys are free again.
        """
        if not iterables:
            raise UsageError("map needs at least one iterable of arguments")
        options = self._options(function, request)
        tasks: Iterator[Task] = (
            self._make(function, options, args, kwargs, None if key is None else f"{key}[{number}]")
            for number, args in enumerate(zip(*iterables, strict=False))
        )
        if key is not None:
            made: list[Task] = []
            try:
                for task in tasks:
                    made.append(task)
                    if len(made) % at_once == 0:
                        yield []
            except BaseException:
                for task in made:
                    self._keys.pop(task.future.task_id, None)
                raise
            tasks = iter(made)
        handed: list[TaskFuture] = []
        try:
            while lot := list(islice(tasks, at_once)):
                handed += [one.future for one in lot]
                self._tracker.add(lot)
                yield handed[-len(lot) :]
        except BaseException:
            for future in handed:
                self.cancel(future)
            raise

    def _key(self, key: str) -> str:
        if not isinstance(key, str) or not key:
            raise UsageError(f"key={key!r} is no text to call a task by")
        mine = object()
        if self._keys.setdefault(key, mine) is not mine:
            raise UsageError(f"key={key!r} was given to another task of this session: keys are unique")
        return key

    def _give_up(self, future: TaskFuture) -> bool:
        return self._tracker.cancel(future.task_id, "cancelled by the program")

    def _place(self) -> tuple[str | None, dict[str, str]]:
        """The span that submits, and where workers record."""
        run = self._run
        if run is None:
            return None, {}
        here = current.get()
        if here is None or here._sink is not run.recorder:
            here = find_parent(here)
            if here is None or here._sink is not run.recorder:
                here = run.root
        span_id, place = self._last_place
        if span_id != here.span_id:
            span_id = here.span_id
            place = {TRACEPARENT: format_traceparent(run.recorder.trace_id, span_id), RUN: str(run.path)}
            self._last_place = span_id, place
        return span_id, place


def _result(future: TaskFuture, errors: Literal["raise", "return"]) -> Any:
    """The result of a task, or the exception in its place."""
    try:
        return future.result()
    except Exception as error:
        if errors == "raise" or not future.done():  # not the task's exception
            raise
        return error


def _checked(futures: Iterable[TaskFuture], errors: str = "raise") -> list[TaskFuture]:
    """The futures as a list; a `UsageError` where something else is among them, or for another word."""
    if errors not in ("raise", "return"):
        raise UsageError(f"errors={errors!r} is neither 'raise' nor 'return'")
    if isinstance(futures, standard.Future):
        raise UsageError(f"give a list of futures; of {futures!r} alone, take the result()")
    awaited = list(futures)
    for one in awaited:
        if not isinstance(one, standard.Future):
            raise UsageError(
                f"{type(one).__name__} {str(one)[:80]!r} is no future: give a list of what submit and map "
                "return"
            )
    return awaited


class Parameters(NamedTuple):
    """What a function calls its arguments."""

    positional: tuple[str, ...]
    rest: str | None
    """The name of `*args`."""


def task_name(function: Callable[..., Any]) -> str:
    """What tasks of a function are called: the function's name, or the class of an object that is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", None) or type(function).__name__)


def named_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, in the order of the signature; arguments bound by `partial` included.

    What the signature does not tell (a builtin, a call that does not fit) is called `arg0`, `arg1`, …
    Defaults that the call leaves alone are not listed. Never raises.
    """
    while isinstance(function, functools.partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    positional, rest = _parameters(function)
    given = len(args)
    made = dict(zip(positional, args, strict=False))
    if given > len(positional):
        if rest is not None:
            made[rest] = list(args[len(positional) :])
        else:
            made.update((f"arg{i}", args[i]) for i in range(len(positional), given))
    if kwargs:
        made.update((name, kwargs[name]) for name in positional[given:] if name in kwargs)
        for name, value in kwargs.items():
            # A positional-only parameter and a keyword may have one name.
            made[f"{name} (keyword)" if name in positional[:given] else name] = value
    return made


def recorded(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as they are written down: bounded, redacted, and nothing that JSON cannot hold."""
    if _is_plain(arguments):
        return dict(arguments)
    return clean(arguments)[0]


def digest(args: Mapping[str, Any]) -> str | None:
    """16 hex digits, the same for the same recorded arguments in any process on any day; None where there are
    none.
    """
    if not args:
        return None
    import hashlib

    return hashlib.blake2b(_encode(args), digest_size=8).hexdigest()


def _is_plain(arguments: Mapping[str, Any]) -> bool:
    """Whether everything can be written as it is: most calls, at a fraction of the cost of a closer look."""
    for name, value in arguments.items():
        kind = type(value)
        if kind is str:
            if len(value) > SessionLimits.max_plain_text or not value.isalnum() or has_own_patterns():
                return False
        elif kind is int:
            if not -(2**63) <= value < 2**63:
                return False
        elif kind is float:
            if value - value != 0:  # NaN and infinities
                return False
        elif kind is not bool and value is not None:
            return False
        if is_secret_key(name):
            return False
    return len(arguments) <= 32


def _parameters(function: Callable[..., Any]) -> Parameters:
    if isinstance(function, MethodType):
        positional, rest = _parameters(function.__func__)
        return Parameters(positional[1:], rest)
    if not isinstance(function, FunctionType | BuiltinFunctionType | type):
        return _read_parameters(function)  # an object may be changed, and equal to another
    found = _known.get(function)
    if found is None:
        found = _known[function] = _read_parameters(function)
    return found


def _read_parameters(function: Callable[..., Any]) -> Parameters:
    try:
        parameters = inspect.signature(function).parameters.values()
    # A builtin without a signature, or one of the user's own making that raises.
    except Exception:  # noqa: BLE001
        return Parameters((), None)
    return Parameters(
        tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)),
        next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None),
    )


def command_words(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    """The words of a command; a `UsageError` for a single text, which would have to be split as a shell
    does.
    """
    if isinstance(command, str | bytes | os.PathLike):
        raise UsageError(f"give a command as a list of words, such as ['ls', '-l']: {command!r}")
    words = [os.fspath(word) for word in command]
    if not words or any(not isinstance(word, str) for word in words):
        raise UsageError(f"a command is a list of at least one word, all of them text: {words!r}")
    return words


def command_name(words: Sequence[str]) -> str:
    """What the task of a command is called: the program's own name."""
    return Path(words[0]).name or words[0]


def command_arguments(words: Sequence[str], cwd: str | None) -> dict[str, Any]:
    """The command as it is recorded, its secrets hidden."""
    return {"command": redact_command(words), **({} if cwd is None else {"cwd": cwd})}


def run_words(words: Sequence[str], cwd: str | None, env: Mapping[str, str] | None) -> CommandOutput:
    """In the worker: run the command to its end. `env` is added to the worker's environment.

    The task gets the metrics `exit_code`, `command_cpu_s` and, where it is known, `command_peak_rss_bytes`.
    Another exit code than 0, a signal, or a program that cannot be started is a `CommandError`.
    """
    import subprocess

    place = {ENVIRONMENT[key]: value for key, value in carrier().items()}
    name = command_name(words)
    floor = own_peak_rss_bytes()
    (from_out, to_out), (from_err, to_err) = make_pipe(), make_pipe()
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {}), **place},
            stdin=subprocess.DEVNULL,
            stdout=to_out.fd,
            stderr=to_err.fd,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - two C calls
        )
    except OSError as error:
        raise _failed(
            f"{name} could not be started: {error.strerror or error}: {error.filename}", 127
        ) from error
    finally:
        to_out.close()
        to_err.close()
    tails = OutputTail(), OutputTail()
    readers = [
        threading.Thread(target=_read, args=(pipe, tail, name), name="flightlog-output", daemon=True)
        for pipe, tail in zip((from_out, from_err), tails, strict=True)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    cpu_s, largest = usage.ru_utime + usage.ru_stime, max_rss_bytes(usage)
    # The kernel's mark counts from before the command took the place of the worker's copy.
    peak = largest if largest > floor else None
    span = current_span()
    span.metrics.update(command_cpu_s=cpu_s, exit_code=code)
    if peak is not None:
        span.metrics["command_peak_rss_bytes"] = peak
    out, err = (tail.text() for tail in tails)
    if code != 0:
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        raise _failed(f"{name} {how}", code, out, err)
    return CommandOutput(
        exit_code=code,
        stdout=out,
        stderr=err,
        stdout_bytes=tails[0].total_bytes,
        stderr_bytes=tails[1].total_bytes,
        cpu_s=cpu_s,
        peak_rss_bytes=peak,
    )


def _failed(message: str, code: int, out: str = "", err: str = "") -> CommandError:
    error = CommandError(message)
    error.exit_code, error.signal = (code, None) if code >= 0 else (None, signal_name(-code))
    error.stdout, error.stderr = out, err
    error.error_type = error.signal or "ExitCode"
    return error


def _read(pipe: Descriptor, tail: OutputTail, name: str) -> None:
    """Read to the end, or for as long as the pipe is ours: who closes all descriptors of this process closes
    it, too.
    """
    try:
        while data := os.read(pipe.fd, 1 << 16):
            tail.add(data)
    except OSError as error:
        log.warning("the rest of what %s writes is not known: %s", name, error.strerror or error)
    pipe.close()


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux, a command does not outlive the worker that is killed because of a timeout or a
    cancellation.
    """
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
