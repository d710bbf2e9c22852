"""Spans: the context manager, the decorator, and the no-op that stands in when recording is off."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextvars import ContextVar
from math import nan
from typing import Any, Literal, Protocol, Self, TypeVar, cast

from msgspec import Struct

from flightlog.record.clock import monotonic_ns
from flightlog.record.limits import RecordLimits

F = TypeVar("F", bound=Callable[..., Any])


class Sink(Protocol):
    """Where spans go when they end: the recorder of a run in this process."""

    open: dict[str, Span]

    def next_id(self) -> str:
        """A span id that no other span has."""
        ...

    def describe_error(self, span: Span, kind: type[BaseException], error: BaseException | None) -> None:
        """Write an exception into a span; never raises."""
        ...

    def finish(self, span: Span, start_ns: int, end_ns: int) -> None:
        """Record a span that ended; never raises."""
        ...


current: ContextVar[Span | None] = ContextVar("flightlog_span", default=None)
"""The innermost span of this context; a run's root stands for the run itself."""

_get, _set = current.get, current.set
_new = object.__new__


class Span:
    """One thing that code does, from `__enter__` to `__exit__`.

    Set `metrics[...]` and `tags[...]` while it is open. It never changes what the code does: exceptions pass
    through untouched, values that JSON cannot hold are represented, and whatever goes wrong is counted.
    """

    status: Literal["ok", "error"] = "ok"
    error_type: str | None = None
    error_message: str | None = None
    span_id = ""
    duration_s: float | None = None
    shown_open = True
    _sink: Sink | None = None  # while the span is open
    _parent: Span | None = None  # kept afterwards, so that a stale context finds its way up
    _start: int | None = None  # while it is open and this process's to end

    def __init__(self, name: str, tags: dict[str, Any]) -> None:
        self.name = name
        self.tags = tags
        self.metrics: dict[str, Any] = {}

    @property
    def parent_id(self) -> str | None:
        """The span, task or run it happens in."""
        return self._parent.span_id if self._parent is not None else None

    @property
    def trace_id(self) -> str:
        """The W3C trace id; empty if it was never recorded."""
        here: Span | None = self
        while here is not None and not isinstance(here, RootSpan):
            here = here._parent
        return here.trace_id if here is not None else ""

    def __enter__(self) -> Self:
        if self.span_id and not self._begin_again():
            return self
        parent = _get()
        sink = None if parent is None else parent._sink
        if sink is None:
            parent = find_parent(parent)
            sink = None if parent is None else parent._sink
            if sink is None:  # there is none, or another thread has ended it just now
                return self
        try:
            self._sink = sink
            self._parent = parent
            self.span_id = key = sink.next_id()
            sink.open[key] = self
            _set(self)
            self._start = monotonic_ns()
        except BaseException:  # a signal handler's: the block is not entered
            if _get() is self:
                _set(parent)
            sink.open.pop(self.span_id, None)
            self._sink = self._start = None
            raise
        return self

    def _begin_again(self) -> bool:
        """Forget an earlier use; False while that one is still open: a span is no parent of itself."""
        if self._start is not None:
            return False
        self.metrics = {}
        self.status, self.error_type, self.error_message, self.duration_s = "ok", None, None, None
        return True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            end = monotonic_ns()
            if (here := _get()) is self or _is_inside(here, self):
                _set(self._parent)
            start, sink = self._start, self._sink
            if start is None or sink is None:  # never entered, ended, or of the process that forked this one
                return
            self._start = self._sink = None
            if kind is not None:
                sink.describe_error(self, kind, error)
            sink.finish(self, start, end)
        except BaseException:  # a signal handler's
            if self._start is not None:  # it struck before the span was ended
                Span.__exit__(self, kind, error, trace)
            raise

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        self.__exit__(*error)

    def __call__(self, function: F) -> F:
        """The span as a decorator: each call is a span of its own."""
        return traced(self.name, self.tags, function)

    def add_metric(self, key: str, value: float) -> None:
        """Add a value; a second one of the same key makes a list, nothing is overwritten."""
        add_metric(self.metrics, key, value)

    def set_status(self, status: str, message: str | None = None) -> None:
        """Say how it ended, for errors that are returned and not raised: `"error"`, or `"ok"`."""
        self.status = "error" if is_error(status) else "ok"
        self.error_message = message

    def duration(self) -> float:
        """Seconds: so far while it is open, in all when it has ended, NaN if it was never recorded."""
        if self._start is None:
            return nan if self.duration_s is None else self.duration_s
        return (monotonic_ns() - self._start) / 1e9


def is_error(status: object) -> bool:
    """Whether a status says that something went wrong."""
    return issubclass(type(status), str) and str.__eq__(cast(str, status), "error")


def add_metric(metrics: dict[str, Any], key: str, value: float) -> None:
    """Add a value to a mapping of metrics, beside the values that are there; a name that is no text becomes
    one.
    """
    if type(key) is not str or type(metrics) is not dict:
        from flightlog.record.values import ask, text_of

        key = text_of(key)
        if type(metrics) is not dict:  # set by the program: its own code decides what becomes of it
            ask(_add_metric, metrics, key, value, otherwise=None)
            return
    _add_metric(metrics, key, value)


def _add_metric(metrics: dict[str, Any], key: str, value: float) -> None:
    if key not in metrics:
        metrics[key] = value
        return
    there = metrics[key]
    if type(there) is not list:
        there = metrics[key] = [there]
    if len(there) < RecordLimits.max_metric_values:
        there.append(value)
    else:
        metrics[f"{key}.dropped"] = metrics.get(f"{key}.dropped", 0) + 1


class RootSpan(Span):
    """A span that is never recorded itself: a run, or the place in another process that work came from."""

    trace_id = ""

    def __init__(self, sink: Sink, trace_id: str, span_id: str, parent: Span | None = None) -> None:
        super().__init__("", {})
        self.trace_id, self.span_id = trace_id, span_id
        self._sink, self._parent = sink, parent


class RunSpan(Span):
    """A span of one run, also where the context is another run's, or nobody's."""

    def __init__(self, root: Span, name: str, tags: dict[str, Any]) -> None:
        super().__init__(name, tags)
        self._root = root
        self._before: Span | None = None

    def __enter__(self) -> Self:
        self._before = here = _get()
        if self._root._sink is None:  # the run is over
            return self
        try:
            if here is None or here._sink is not self._root._sink:
                _set(self._root)
            return super().__enter__()
        except BaseException:  # a signal handler's: the block is not entered
            _set(here)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            if _get() is self._root:
                _set(self._before)


class _NothingKept(dict[str, Any]):
    """A mapping that stays empty: what a no-op span has for tags and metrics.

    What is read from it is neutral, so that code which counts or reads back runs as it does when recorded.
    """

    __slots__ = ("_neutral",)

    def __init__(self, neutral: Any) -> None:
        super().__init__()
        self._neutral = neutral

    def __missing__(self, _key: str) -> Any:
        return self._neutral

    def __setitem__(self, _key: str, _value: object) -> None:
        return None

    def __ior__(self, _other: object) -> _NothingKept:  # type: ignore[override,misc]
        return self

    def update(self, *_args: object, **_values: object) -> None:
        return None

    def setdefault(self, _key: str, default: Any = None) -> Any:
        return default


class _KeepsNothing:
    """What a span does that keeps nothing."""

    __slots__ = ()

    def __enter__(self) -> NoopSpan:
        return NOOP

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        return None

    async def __aenter__(self) -> NoopSpan:
        return NOOP

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        return None

    def add_metric(self, key: str, value: float) -> None:
        """Nothing."""

    def set_status(self, status: str, message: str | None = None) -> None:
        """Nothing."""

    def duration(self) -> float:
        """NaN: nothing was measured."""
        return nan


class NoopSpan(_KeepsNothing):
    """The span of a program that is not recorded: one for all, immutable, same interface, keeps nothing."""

    __slots__ = ()
    name = ""
    metrics: dict[str, Any] = _NothingKept(0)
    tags: dict[str, Any] = _NothingKept("")
    trace_id = span_id = ""
    parent_id = status = duration_s = error_type = error_message = None

    def __enter__(self) -> NoopSpan:
        return self

    async def __aenter__(self) -> NoopSpan:
        return self

    def __call__(self, function: F) -> F:
        """The function as it is."""
        return function

    def __setattr__(self, name: str, value: object) -> None:
        return None


NOOP = NoopSpan()


class IdleSpan(_KeepsNothing, Struct, gc=False):
    """A span asked for while no run is active: a no-op inside `with`, a working decorator for later."""

    name: str
    tags: dict[str, Any]
    metrics = property(lambda _self: NOOP.metrics)

    def __call__(self, function: F) -> F:
        """The function, each call of it a span of the run that is active then."""
        return traced(self.name, self.tags, function)


OFF, IDLE, UNSURE, ACTIVE = 0, 1, 2, 3
_mode = IDLE
_find_run: Callable[[], bool] = lambda: False  # noqa: E731 - replaced by the recorder
_find_parent: Callable[[], Span | None] = lambda: None  # noqa: E731 - replaced by the recorder


def set_mode(mode: int) -> None:
    """Say whether spans are recorded (ACTIVE), may be later (IDLE), never are (OFF), or if that is to be
    found out.
    """
    global _mode
    _mode = mode


def connect(find_run: Callable[[], bool], find_parent: Callable[[], Span | None]) -> None:
    """Let the recorder answer what a span cannot know: which run this process or thread belongs to."""
    global _find_run, _find_parent
    _find_run, _find_parent = find_run, find_parent


def span(name: str, /, **tags: Any) -> Span:
    """A span to use with `with`, `async with` or as a decorator; tags may be called anything.

    As a bare decorator, `@flightlog.span`, it takes the function's name.
    """
    if type(name) is not str:
        return _named(name, tags)  # type: ignore[no-any-return]
    if _mode == ACTIVE:  # as `Span(name, tags)`, at three quarters of its price
        made = _new(Span)
        made.name, made.tags, made.metrics = name, tags, {}
        return made
    if _mode == UNSURE and _find_run():
        return Span(name, tags)
    if _mode == OFF:
        return NOOP  # type: ignore[return-value] # the same interface
    return IdleSpan(name, tags)  # type: ignore[return-value] # the same interface


def _named(name: Any, tags: dict[str, Any]) -> Any:
    """A span whose name is no plain text: a function to be decorated, or anything that has a text."""
    from flightlog.record.values import ask, class_name, text_of

    if callable(name) and not issubclass(type(name), type):
        called = ask(getattr, name, "__qualname__", otherwise=None)
        return traced(called if type(called) is str else class_name(type(name)), tags, name)
    return span(text_of(name), **tags)


def _is_inside(here: Span | None, outer: Span) -> bool:
    """Whether a span is still current although the one around it ends.

    A signal handler's exception may strike at the very call of a span's `__exit__`, before its first line:
    that span is left open, and the context comes right when the one around it ends.
    """
    while here is not None and here is not outer:
        here = here._parent
    return here is outer


def find_parent(stale: Span | None) -> Span | None:
    """The span to be inside of when the context names none that is open."""
    while stale is not None:
        if stale._sink is not None:
            return stale
        stale = stale._parent
    return _find_parent()


def traced(name: str, tags: dict[str, Any], function: F) -> F:
    """The function, each call of it a span; as it is where it cannot be wrapped."""
    from flightlog.record.values import ask

    return ask(_wrapped, name, tags, function, otherwise=function)


def current_span() -> Span:
    """The innermost open span of this context, or the no-op."""
    here = _get()
    if here is None or here._sink is None or not here.name:
        return NOOP  # type: ignore[return-value] # the same interface
    return here


def _wrapped(name: str, tags: dict[str, Any], function: F) -> F:
    """The function with a span around each call.

    A generator's span is open from its first step to its end, and is the current span only while the
    generator itself runs: its consumer's spans are not inside it.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with span(name, **tags):
                return await function(*args, **kwargs)

        return cast(F, coroutine)
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            inner = function(*args, **kwargs)
            step, arg = inner.asend, None
            outer = current.get()
            try:
                with span(name, **tags) as this:
                    while True:
                        try:
                            item = await step(arg)
                        except StopAsyncIteration:
                            return
                        current.set(outer)
                        try:
                            arg, step = (yield item), inner.asend
                        except GeneratorExit:
                            outer = _resume(this)
                            await inner.aclose()
                            raise
                        # It goes into the generator, as if it were not wrapped.
                        except BaseException as error:  # noqa: BLE001
                            arg, step = cast(Any, error), inner.athrow
                        outer = _resume(this)
            finally:
                # The consumer's span now, which need not be the one the generator began in.
                current.set(outer)

        return cast(F, async_generator)
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            inner = function(*args, **kwargs)
            step, arg = inner.send, None
            outer = current.get()
            try:
                with span(name, **tags) as this:
                    while True:
                        try:
                            item = step(arg)
                        except StopIteration as stop:
                            return stop.value
                        current.set(outer)
                        try:
                            arg, step = (yield item), inner.send
                        except GeneratorExit:
                            outer = _resume(this)
                            inner.close()
                            raise
                        # It goes into the generator, as if it were not wrapped.
                        except BaseException as error:  # noqa: BLE001
                            arg, step = error, inner.throw
                        outer = _resume(this)
            finally:
                # The consumer's span now, which need not be the one the generator began in.
                current.set(outer)

        return cast(F, generator)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with span(name, **tags):
            return function(*args, **kwargs)

    return cast(F, plain)


def _resume(this: Span) -> Span | None:
    """Make a generator's span the current one again; gives the one its consumer has now."""
    outer = current.get()
    if isinstance(this, Span):
        current.set(this)
    return outer
