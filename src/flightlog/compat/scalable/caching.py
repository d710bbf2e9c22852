"""`cacheable` in Scalable's form: how arguments count in the key, by type, path content or `__hash__`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from flightlog.compat.limits import CompatLimits
from flightlog.compat.scalable.manifest import FLIGHTLOG_VARIABLES
from flightlog.core.errors import UsageError
from flightlog.record.clock import monotonic_ns
from flightlog.record.run import describe_artifact
from flightlog.session.cache.decorator import cache_options, cached_call
from flightlog.session.cache.decorator import cacheable as keep_results
from flightlog.session.cache.key import CacheOptions, Key, make_key, plain_call
from flightlog.session.cache.store import CacheFolder
from flightlog.session.digest.values import Unstable, digest_value

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


SNIFFING = "SCALABLE_PATH_SNIFFING"
OFF_WORDS = ("0", "false", "off")


class CheckedResult:
    """A result, and its fingerprint when it was cached."""

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
    """Cache a function's results; a decorator with or without arguments.

    `arg_types` say how arguments count, by name. A text that is the path of a file or folder also counts by
    its content, unless `SCALABLE_PATH_SNIFFING=0`. `check_output` recomputes where a result, or the file it
    names (by `return_type`), has changed since. `recompute` ignores cached results. With `void` or without
    `store` nothing is cached. `_version` is part of the code, as in `flightlog.cacheable`; a call with
    `_cache_bypass=True` computes, and caches the result.
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
        made = CheckedResult(value, fingerprint(value, return_type)) if check else value
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
        replace_arguments(bound, kinds)
        cache = CacheFolder(_folder())
        result, _ = cached_call(computed, bound.args, bound.kwargs, wanted, cache)
        if not check:
            return result
        if not isinstance(result, CheckedResult) or result.was != fingerprint(result.value, return_type):
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
    # There is none, or the user's code runs here; the function itself has been called, or will be.
    except Exception:  # noqa: BLE001
        return None


def _keep_for_later(before: Key | None, after: Key | None, value: Any, cost_s: float) -> None:
    """Cache a result also under the key after the call, where the function changed variables that it uses.

    Such variables count as its code does, since others may change them. What the function does to them itself
    must not invalidate its own result.
    """
    if before is None or after is None or before.key == after.key:
        return
    if before.about.arguments == after.about.arguments:
        CacheFolder(_folder()).put(after.key, value, cost_s, after.about)


def _folder() -> str | None:
    """The folder of `SCALABLE_CACHE_DIR`; None where Flightlog's own variable is set."""
    return None if os.environ.get(FLIGHTLOG_VARIABLES[CACHE_DIR]) else os.environ.get(CACHE_DIR) or None


class GenericType:
    """How an argument or a result counts. A class of your own with a `__hash__` counts by that."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _ByContent(GenericType):
    def __hash__(self) -> int:
        return _content_hash(self.value)


class _ByPath(GenericType):
    def __hash__(self) -> int:
        return _content_hash(_content(self.value, named=True))


class ValueType(_ByContent):
    """By its type and value."""


class ObjectType(_ByContent):
    """By its type and content."""


class UtilityType(_ByContent):
    """Arrays and data frames: by their type and content."""


class FileType(_ByPath):
    """The path of a file: by the file's name and content."""


class DirType(_ByPath):
    """The path of a folder: by its name, and the names and contents of the files in it."""


_OWN_HASHES: frozenset[Any] = frozenset({object.__hash__, _ByContent.__hash__, None})
_PATH_HASH: Any = _ByPath.__hash__


def convert_to_type(value: Any) -> GenericType:
    """How a value counts by default; an existing path counts by its content."""
    if isinstance(value, str) and _sniffing() and _path_contents(value) is not None:
        return DirType(value) if os.path.isdir(value) else FileType(value)  # noqa: PTH112 - a text
    if isinstance(value, str | int | float | bool | bytes):
        return ValueType(value)
    return ObjectType(value) if isinstance(value, list | dict | tuple) else UtilityType(value)


class CacheArgument:
    """An argument whose key is made of other values; the function gets the argument itself."""

    def __init__(self, value: Any, *by: Any) -> None:
        self.value, self.by = value, by

    def __reduce__(self) -> tuple[Any, ...]:
        """What the key is made of: the cache takes objects apart as `pickle` does."""
        return CacheArgument, (None, *self.by)


def replace_arguments(bound: inspect.BoundArguments, kinds: Mapping[str, type[GenericType]]) -> None:
    """Wrap the arguments that do not count by their value."""
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        made: Any
        if kind is inspect.Parameter.VAR_POSITIONAL:
            made = tuple(_cache_argument(each, kinds.get(name)) for each in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            made = {key: _cache_argument(each, kinds.get(key)) for key, each in value.items()}
        else:
            made = _cache_argument(value, kinds.get(name))
        bound.arguments[name] = made


def _cache_argument(value: Any, kind: type[GenericType] | None) -> Any:
    if kind is None:
        by = _path_contents(value) if _sniffing() else None
        return value if by is None else CacheArgument(value, by)
    if kind.__module__ == "builtins" or kind.__hash__ in _OWN_HASHES:
        return value  # the cache tells values apart by type and content anyway, in every process
    if kind.__hash__ is _PATH_HASH:
        return CacheArgument(value, kind.__name__, *_content(value, named=True))
    return CacheArgument(value, f"{kind.__module__}.{kind.__qualname__}", hash(kind(value)))


def _sniffing() -> bool:
    return os.environ.get(SNIFFING, "1").strip().lower() not in OFF_WORDS


def _path_contents(value: Any) -> Any:
    """The value with the contents of paths in it, also in lists, tuples and dictionaries; None without
    paths.
    """
    if isinstance(value, str):
        may_be_path = 0 < len(value) <= CompatLimits.max_path_length and "\0" not in value
        there = may_be_path and os.path.exists(value)  # noqa: PTH110 - it is a text
        return (value, *_content(value, named=False)) if there else None
    if type(value) not in (list, tuple, dict):
        return None
    keys, parts = (list(value), list(value.values())) if type(value) is dict else (None, list(value))
    found = [_path_contents(part) for part in parts]
    if all(one is None for one in found):
        return None
    return type(value).__name__, keys, [parts[i] if one is None else one for i, one in enumerate(found)]


def given(value: Any) -> Any:
    """The argument that `_cache_argument` wrapped."""
    return value.value if isinstance(value, CacheArgument) else value


def _content(path: Any, *, named: bool) -> tuple[Any, ...]:
    """Name and digest of what is at a path. With `named`, raises `ValueError` where there is nothing to
    read.
    """
    found = describe_artifact(path, None, None)
    if found.sha256 is None and named:
        raise ValueError(f"there is nothing to read at {path!r}: {found.error or 'no file'}")
    return (found.name if named else None), found.sha256


def fingerprint(value: Any, return_type: Any) -> Any:
    """A fingerprint of a result by its return type; None where the cached copy itself counts."""
    built_in = not isinstance(return_type, type) or return_type.__module__ == "builtins"
    if built_in or return_type.__hash__ in _OWN_HASHES:
        return None
    if return_type.__hash__ is _PATH_HASH:
        return describe_artifact(value, None, None).sha256
    return hash(return_type(value))


def _content_hash(value: Any) -> int:
    try:
        return int.from_bytes(digest_value(value)[:7], "big")
    except Unstable as error:
        raise TypeError(f"{type(value).__name__} has no value that lasts: it is {error}") from None
