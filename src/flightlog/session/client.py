"""`session.client`: functions and commands in, futures out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures as standard
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flightlog.core.errors import UsageError
from flightlog.engines.execute import plain_dumps
from flightlog.record.context import RUN, TRACEPARENT, format_traceparent
from flightlog.record.run import LiveRun
from flightlog.record.span import current, find_parent
from flightlog.session.arguments import digest, named_arguments, recorded, task_name
from flightlog.session.call_wrapper import call_around
from flightlog.session.command_task import command_arguments, command_name, command_words, run_words
from flightlog.session.futures import TaskFuture, pack, wait_together
from flightlog.session.progress import shown
from flightlog.session.task import Task
from flightlog.session.task_options import Choices, Rules, Wish
from flightlog.session.tracking import Tracker

if TYPE_CHECKING:
    from flightlog.analyze.history.attempts import EarlierRuns
    from flightlog.session.eta import Eta

TOGETHER = 64
"""Tasks of a `map` that are handed over at a time."""


class Kind(NamedTuple):
    """What all tasks of one `map` have in common."""

    function: Callable[..., Any]
    name: str
    choices: Choices


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
        rules: Rules,
        next_id: Callable[[], str],
        progress: bool | None = None,
        dumps: Callable[[Any], bytes] = plain_dumps,
    ) -> None:
        self._tracker, self._run, self._rules, self._next_id = tracker, run, rules, next_id
        self._progress, self._dumps = progress, dumps
        self.functions: dict[Callable[..., Any], None] = {}
        """Every function that was submitted, in order."""
        self._keys: dict[str, object] = {}
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
        kind = self._kind(function, Wish(task, component, tag, key, retries, timeout))
        return self._hand_over(self._make(kind, args, kwargs, key))

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
        if not iterables:
            raise UsageError("map needs at least one iterable of arguments")
        kind = self._kind(function, Wish(task, component, tag, key, retries, timeout))
        calls = zip(*iterables, strict=False)
        tasks = (
            (self._make(kind, args, kwargs, None) for args in calls)
            if key is None
            else iter(self._make_keyed(kind, calls, kwargs, key))
        )
        handed: list[TaskFuture] = []
        try:
            while batch := list(islice(tasks, TOGETHER)):
                handed += [one.future for one in batch]
                self._tracker.add(batch)
        except BaseException:
            for future in handed:
                self.cancel(future)
            raise
        return handed

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
        wish = Wish(task or command_name(words), component, tag, key, retries, timeout)
        made = self._make(self._kind(run_words, wish), call, {}, key, command_arguments(words, folder))
        return self._hand_over(made)

    def gather(
        self, futures: Iterable[TaskFuture], errors: Literal["raise", "return"] = "raise"
    ) -> list[Any]:
        """The results, in the order of the futures, when all are there.

        With `errors="raise"` the first exception in that order is raised as soon as it is known, and the
        other tasks go on; with `"return"` exceptions stand in the places of results. A bar shows how far it
        is, on a terminal and in a notebook.
        """
        if errors not in ("raise", "return"):
            raise UsageError(f"errors={errors!r} is neither 'raise' nor 'return'")
        awaited = _checked(futures)
        results: list[Any] = []
        with shown(lambda: self._tracker.counts, self._progress, self.eta):
            wait_together(awaited)
            for future in awaited:
                try:
                    results.append(future.result())
                except Exception as error:
                    if errors == "raise":
                        raise
                    if not future.done():  # not the task's exception
                        raise
                    results.append(error)
        return results

    def as_completed(
        self, futures: Iterable[TaskFuture], timeout: float | None = None
    ) -> Iterator[TaskFuture]:
        """The futures, each when it is done; a `TimeoutError` where that takes longer than so many
        seconds.
        """
        # No bar here: the code between two futures may print, and a bar would get in its way.
        return standard.as_completed(_checked(futures), timeout)  # type: ignore[return-value] # what goes in comes out

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
                from flightlog.analyze.history.attempts import EarlierRuns
                from flightlog.store.run import Run

                self._earlier = EarlierRuns(Run(self._run.path))
            return self._tracker.pace.eta(self._earlier)
        except Exception:  # noqa: BLE001 - a bar that does not know is better than one that falls over
            return None

    def _kind(self, function: Callable[..., Any], wish: Wish) -> Kind:
        """What all tasks of one call of a method have in common. The function is remembered, unless it is
        ours.
        """
        if not callable(function):
            raise UsageError(f"{function!r} is no function: give one, and its arguments after it")
        if wish.task is not None and (not isinstance(wish.task, str) or not wish.task):
            raise UsageError(f"task={wish.task!r} is no text to call a task by")
        name = wish.task or task_name(function)
        choices = self._rules.choose(name, wish)
        if function is not run_words:
            with suppress(TypeError):  # a callable that cannot be hashed
                self.functions[function] = None
        return Kind(function, name, choices)

    def _make(
        self,
        kind: Kind,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        key: str | None,
        arguments: Mapping[str, Any] | None = None,
    ) -> Task:
        """A task of this kind; `arguments` is what is recorded as such, if not those of the call."""
        function, name, choices = kind
        call: tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]] = function, args, kwargs
        if choices.around:
            call = call_around, (choices.around, *call), {}
        packed = pack(*call, of=function, dumps=self._dumps)
        shown_args = recorded(arguments if arguments is not None else named_arguments(function, args, kwargs))
        args_digest = digest(shown_args)
        span_id = self._next_id()
        parent_id, place = self._place()
        task_id = self._key(key) if key is not None else span_id  # the last that may fail: it takes the key
        return Task(
            task_id=task_id,
            span_id=span_id,
            name=name,
            call=packed.call,
            args=shown_args,
            args_digest=args_digest,
            submitted=time.time(),
            place=place,
            parent_id=parent_id,
            component=choices.component,
            retries=choices.retries,
            timeout_s=choices.timeout_s,
            future=TaskFuture(task_id, name, self._give_up),
            depends_on=packed.futures,
            waits_for=packed.awaited,
            preparation=choices.preparation,
        )

    def _make_keyed(
        self, kind: Kind, calls: Iterable[tuple[Any, ...]], kwargs: Mapping[str, Any], key: str
    ) -> list[Task]:
        """All tasks of a `map` with a key; where one cannot be made, the keys of those before it are free
        again.
        """
        made: list[Task] = []
        try:
            for number, args in enumerate(calls):
                made.append(self._make(kind, args, kwargs, f"{key}[{number}]"))
        except BaseException:
            for task in made:
                self._keys.pop(task.task_id, None)
            raise
        return made

    def _hand_over(self, task: Task) -> TaskFuture:
        self._tracker.add((task,))
        return task.future

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


def _checked(futures: Iterable[TaskFuture]) -> list[TaskFuture]:
    """The futures as a list; a `UsageError` where something else is among them."""
    if isinstance(futures, standard.Future):
        raise UsageError(f"give a list of futures; of {futures!r} alone, take the result()")
    awaited = list(futures)
    for one in awaited:
        if not isinstance(one, standard.Future):
            raise UsageError(
                f"{type(one).__name__} {str(one)[:80]!r} is no future: give a list of what submit and map return"
            )
    return awaited
