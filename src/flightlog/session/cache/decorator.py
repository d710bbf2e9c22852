"""`@cacheable`: a function's results are kept and used again, and every lookup is recorded.

    @cacheable
    def simulate(scenario, steps=100): ...

    simulate(3)                      # computed, and kept
    simulate(3)                      # read, in this process or in any other, today or next month
    simulate.cache_key(3)            # the key, 64 hex digits
    simulate.uncached(3)             # the function itself

What must be so for a result to be used again: the same function with the same code, the same project code and
constants behind it, and the same arguments by name, type and value. A method's object is an argument as any
other. What is returned is what was computed or a copy of it. An exception is never kept. Whatever goes wrong
in the cache, the function is called and its result returned.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar, cast, overload

from flightlog.core.errors import UsageError
from flightlog.core.units import parse_age
from flightlog.events import CacheLookup
from flightlog.record.clock import monotonic_ns
from flightlog.record.context import current_run
from flightlog.record.span import Span, current, current_span
from flightlog.record.task import TaskSpan
from flightlog.session.cache.key import (
    CacheOptions,
    NoKey,
    ResolvedCall,
    check_ignored,
    make_key,
    plain_call,
    short_name,
)
from flightlog.session.cache.store import About, CacheFolder, Hit, default_folder
from flightlog.session.digest.values import Files

F = TypeVar("F", bound=Callable[..., Any])
Store = CacheFolder | str | os.PathLike[str] | None


class Cacheable(Protocol):
    """What `@cacheable` makes of a function, beside calling it."""

    cache_options: CacheOptions
    uncached: Callable[..., Any]
    """The function itself."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result: kept, or computed now."""

    def cache_key(self, *args: Any, **kwargs: Any) -> str:
        """The key of a call, 64 hex digits; a `UsageError` where an argument has no value that lasts."""


@overload
def cacheable(function: Callable[..., Any], /) -> Cacheable: ...
@overload
def cacheable(
    *,
    version: str | int | None = None,
    ignore: Iterable[str] = (),
    ttl: float | str | timedelta | None = None,
    store: Store = None,
    recompute: bool = False,
    files: Files = "content",
) -> Callable[[Callable[..., Any]], Cacheable]: ...
def cacheable(
    function: Callable[..., Any] | None = None,
    /,
    *,
    version: str | int | None = None,
    ignore: Iterable[str] = (),
    ttl: float | str | timedelta | None = None,
    store: Store = None,
    recompute: bool = False,
    files: Files = "content",
) -> Any:
    """Keep a function's results and use them again; with or without arguments, with or without a run.

    `version` is part of the code: change it when something changed that cannot be seen. `ignore` names
    arguments that do not change the result. `ttl` is how long results are good for: seconds, a `timedelta`,
    or `"30d"`. `store` is a `CacheFolder` or a folder (default `.flightlog/cache`). `recompute` makes all
    results anew. `files="path"` lets a `Path` count by its text, and not by the file's name and content.

    Coroutine functions are awaited. A method's object counts by its class and state; what a method does to
    its object is not kept. Under `@classmethod` or `@staticmethod`, not above.
    """
    options = cache_options(version=version, ignore=ignore, ttl=ttl, recompute=recompute, files=files)

    def wrap(inner: Callable[..., Any]) -> Any:
        return _wrap(inner, options, store)

    return wrap if function is None else wrap(function)


def cache_options(
    *,
    version: str | int | None = None,
    ignore: Iterable[str] = (),
    ttl: float | str | timedelta | None = None,
    recompute: bool = False,
    files: Files = "content",
) -> CacheOptions:
    """Options as `cacheable` takes them, checked; a `UsageError` says what makes no sense."""
    if isinstance(ignore, str):
        raise UsageError(f"ignore={ignore!r} is a text: give a list of names, as ignore=[{ignore!r}]")
    if not isinstance(version, str | int | None):
        raise UsageError(f"version={version!r} is neither a text nor a whole number")
    if files not in ("content", "path"):
        raise UsageError(f"files={files!r} is neither 'content' nor 'path'")
    ttl_s: float | None
    if isinstance(ttl, str):
        ttl_s = parse_age(ttl)
    else:
        ttl_s = ttl.total_seconds() if isinstance(ttl, timedelta) else None if ttl is None else float(ttl)
    if ttl_s is not None and not ttl_s > 0:
        raise UsageError(f"ttl={ttl!r} is no time for a result to live: give more than 0 s, or None")
    return CacheOptions(version=version, ignore=tuple(ignore), ttl_s=ttl_s, recompute=recompute, files=files)


def cached_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CacheOptions,
    cache: CacheFolder | None = None,
) -> tuple[Any, CacheLookup]:
    """The result of a call, kept or computed now, and what the cache was asked; recorded in the run there is.

    What `function` raises is raised. A function that is `cacheable` itself is looked up once, with these
    options.
    """
    asked = _Asked(plain_call(function, args, kwargs), options, cache)
    if asked.hit is not None:
        return asked.hit.value, asked.record()
    with asked.computing():
        value = asked.call.function(*asked.call.args, **asked.call.kwargs)
    return value, asked.keep(value)


async def cached_await(
    function: Callable[..., Awaitable[Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: CacheOptions,
    cache: CacheFolder | None = None,
) -> tuple[Any, CacheLookup]:
    """As `cached_call`, of a coroutine function: what it gives when awaited is kept."""
    asked = _Asked(plain_call(function, args, kwargs), options, cache)
    if asked.hit is not None:
        return asked.hit.value, asked.record()
    with asked.computing():
        value = await asked.call.function(*asked.call.args, **asked.call.kwargs)
    return value, asked.keep(value)


class _Asked:
    """A lookup that is made; it is recorded once, when it is known whether its result could be kept."""

    hit: Hit | None = None
    _about: About | None = None
    _cost_s = 0.0

    def __init__(self, call: ResolvedCall, options: CacheOptions, cache: CacheFolder | None) -> None:
        self._began_ns = monotonic_ns()
        self.call, self._cache = call, cache or _default_cache()
        self._event = event = CacheLookup(task=short_name(call.function), result="bypass", key=None)
        try:
            event.key, self._about = make_key(call, options)
            self._look(event.key, self._about, options)
        except NoKey as error:
            event.reason = str(error)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the function can still be called
            event.result, event.reason = "bypass", f"the lookup failed: {type(error).__name__}: {error}"
        event.duration_s = (monotonic_ns() - self._began_ns) / 1e9

    def _look(self, key: str, about: About, options: CacheOptions) -> None:
        event = self._event
        found = self._cache.lookup(key, about, ttl_s=options.ttl_s, recompute=options.recompute)
        if isinstance(found, Hit):
            self.hit, event.result = found, "hit"
            event.saved_s, event.size_bytes = found.cost_s, found.size_bytes
            return
        event.reason = found.reason
        if not found.refused:
            event.result = "miss"
            self._cache.note_miss(key, found, about)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around the call itself: measures it, and records the lookup of one that raises."""
        began = monotonic_ns()
        try:
            yield
        except BaseException:
            self.record()
            raise
        self._cost_s = (monotonic_ns() - began) / 1e9
        self._event.computed_s = self._cost_s

    def keep(self, value: Any) -> CacheLookup:
        """Keep what was computed, if this was a miss."""
        event = self._event
        if event.result == "miss" and event.key is not None:
            kept = self._cache.put(event.key, value, self._cost_s, self._about)
            event.size_bytes = kept.size_bytes
            if kept.unpicklable:
                event.result, event.reason = "bypass", kept.problem
            elif kept.problem is not None and (run := current_run()) is not None:
                run.recorder.count("cache_results_not_kept")
        return self.record()

    def record(self) -> CacheLookup:
        """Record the lookup, in the run there is."""
        run, event = current_run(), self._event
        event.task_id, event.span_id = _task_id(), current_span().span_id or None
        if run is not None:
            event.timestamp = run.recorder.clock.iso(self._began_ns)
            run.emit(event)
        return event


def _wrap(function: Any, options: CacheOptions, store: Store) -> Any:
    if isinstance(function, classmethod | staticmethod):
        kind = type(function).__name__
        raise UsageError(f"put @cacheable under @{kind}, next to the function")
    if not callable(function) or isinstance(function, type):
        raise UsageError(f"@cacheable is for functions, not for {function!r}")
    check_ignored(function, options.ignore)

    def cache_of() -> CacheFolder:
        if isinstance(store, CacheFolder):
            return store
        return _default_cache() if store is None else opened_cache(store)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            value, _ = await cached_await(function, args, kwargs, options, cache_of())
            return value

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            value, _ = cached_call(function, args, kwargs, options, cache_of())
            return value

    def cache_key(*args: Any, **kwargs: Any) -> str:
        try:
            return make_key(plain_call(function, args, kwargs), options).key
        except NoKey as error:
            raise UsageError(str(error)) from None

    made = cast(Any, wrapper)
    made.uncached, made.cache_options, made.cache_key = function, options, cache_key
    return made


_caches: dict[str, CacheFolder] = {}


def opened_cache(folder: str | os.PathLike[str]) -> CacheFolder:
    """The cache in a folder, the same one each time."""
    # At every call, and a Path costs more.
    path = os.path.abspath(os.path.expanduser(folder))  # noqa: PTH100, PTH111
    if path not in _caches:
        _caches[path] = CacheFolder(path)
    return _caches[path]


def _default_cache() -> CacheFolder:
    return opened_cache(default_folder())


def _task_id() -> str | None:
    """The task this happens in."""
    here: Span | None = current.get()
    while here is not None:
        task_id = getattr(here, "task_id", None)
        if task_id is not None or isinstance(here, TaskSpan):
            return str(task_id or here.span_id)
        here = here._parent
    return None
