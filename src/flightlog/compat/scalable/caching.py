"""`cacheable` in Scalable's form."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from flightlog.compat.scalable.counting import (
    DirType,
    FileType,
    GenericType,
    ObjectType,
    UtilityType,
    ValueType,
    convert_to_type,
    fingerprint,
    given,
    mark,
)
from flightlog.compat.scalable.variables import STANDS_FOR
from flightlog.errors import UsageError
from flightlog.record.clock import monotonic_ns
from flightlog.session.cache import Cache, CacheOptions, cache_options, cached_call
from flightlog.session.cache import cacheable as keep_results
from flightlog.session.cache_key import Key, NoKey, make_key, plain_call

__all__ = [
    "DirType",
    "FileType",
    "GenericType",
    "ObjectType",
    "UtilityType",
    "ValueType",
    "cacheable",
    "convert_to_type",
]

CACHE_DIR = "SCALABLE_CACHE_DIR"


class Checked:
    """A result, and what it was when it was kept."""

    def __init__(self, value: Any, was: Any) -> None:
        self.value, self.was = value, was


def cacheable(
    return_type: type[GenericType] | Callable[..., Any] | None = None,
    void: bool = False,
    check_output: bool = False,
    recompute: bool = False,
    store: bool = True,
    **arg_types: type[GenericType],
) -> Any:
    """Keep a function's results and use them again; with or without arguments.

    `arg_types` say how arguments count, by name. A text that is the path of a file or folder counts by what
    is there, too, unless `SCALABLE_PATH_SNIFFING=0`. `check_output` computes again where a result, or the
    file it names (by `return_type`), is no longer what it was. `recompute` makes all results anew. With
    `void` or without `store` nothing is kept, and the function is called each time. `_version` is part of the
    code, as in `flightlog.cacheable`; a call with `_cache_bypass=True` computes, and keeps the result.
    """
    version: Any = arg_types.pop("_version", None)
    if return_type is not None and not isinstance(return_type, type):
        return cacheable()(return_type)
    for name, kind in {**arg_types, "return_type": return_type}.items():
        if kind is not None and not (isinstance(kind, type) and callable(kind)):
            raise UsageError(f"{name}={kind!r} is no class that says how it counts, such as FileType")
    kinds = dict(arg_types)

    def decorate(function: Callable[..., Any]) -> Any:
        if void or not store:
            return function
        if inspect.iscoroutinefunction(function) or not inspect.isfunction(function):
            return keep_results(recompute=recompute, version=version, store=_folder())(function)
        options = cache_options(recompute=recompute, version=version)
        return _wrap(function, kinds, return_type if check_output else None, check_output, options)

    return decorate


def _wrap(
    function: Callable[..., Any],
    kinds: Mapping[str, type[GenericType]],
    return_type: Any,
    check: bool,
    options: CacheOptions,
) -> Any:
    always = replace(options, recompute=True)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        before = _key(computed, args, kwargs, options)
        began = monotonic_ns()
        value = function(*map(given, args), **{name: given(each) for name, each in kwargs.items()})
        made = Checked(value, fingerprint(value, return_type)) if check else value
        after = _key(computed, args, kwargs, options)
        _keep_for_later(before, after, made, (monotonic_ns() - began) / 1e9)
        return made

    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        wanted = always if kwargs.pop("_cache_bypass", False) else options
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # which says what is wrong with the call
        bound.apply_defaults()  # a default that names a file counts as any other
        mark(bound, kinds)
        cache = Cache(_folder())
        result, _ = cached_call(computed, bound.args, bound.kwargs, wanted, cache)
        if not check:
            return result
        if not isinstance(result, Checked) or result.was != fingerprint(result.value, return_type):
            result, _ = cached_call(computed, bound.args, bound.kwargs, always, cache)
        return result.value

    made: Any = inner
    made.uncached = function
    return made


def _key(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: CacheOptions
) -> Key | None:
    try:
        return make_key(plain_call(function, args, kwargs), options)
    except NoKey:
        return None
    except Exception:  # noqa: BLE001 - the user's code may run here; the function itself has been called, or will be
        return None


def _keep_for_later(before: Key | None, after: Key | None, value: Any, cost_s: float) -> None:
    """Keep a result also for what the function itself has made of the variables that it uses, such as a
    counter.

    They count as its code does: somebody else may change them. What it does to them itself is nothing new,
    for it says of itself that its result is the same each time.
    """
    if before is None or after is None or before.key == after.key:
        return
    if before.about.arguments == after.about.arguments:
        Cache(_folder()).put(after.key, value, cost_s, after.about)


def _folder() -> str | None:
    """Where results are kept, if `SCALABLE_CACHE_DIR` says so and Flightlog's own variable does not."""
    return None if os.environ.get(STANDS_FOR[CACHE_DIR]) else os.environ.get(CACHE_DIR) or None
