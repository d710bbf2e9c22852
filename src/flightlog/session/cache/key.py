"""The key of a call: 256 bits of the function's code and of its arguments by name, type and value."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType, MethodType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from flightlog.core.errors import UsageError
from flightlog.session.cache.store import About
from flightlog.session.digest.code import code_digest
from flightlog.session.digest.origins import module_label
from flightlog.session.digest.values import Files, Unstable, digest_value

_encode = msgspec.json.Encoder().encode


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a function's results are kept; made by `cache_options`, which checks what it is given."""

    version: str | int | None = None
    """Part of the code: another version is another code."""
    ignore: tuple[str, ...] = ()
    """Arguments that are no part of the key."""
    ttl_s: float | None = None
    """How long a result is good for; None for ever."""
    recompute: bool = False
    """Make every result anew, and keep it in place of the old one."""
    files: Files = "content"
    """How a `Path` counts: `content` is the name and content of the file there, `path` its text alone."""
    bypass: str | None = None
    """Why nothing is looked up and nothing kept; None where the cache is used."""


class ResolvedCall(NamedTuple):
    """A function and what it is called with: `partial` and bound methods resolved."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Key(NamedTuple):
    """A key, and what it was made of."""

    key: str
    about: About


class NoKey(Exception):  # noqa: N818 - says what happened
    """There is no key for a call; the text is the reason for passing the cache by."""


def plain_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> ResolvedCall:
    """The call without its wrappings: bound arguments are arguments, and a method's or callable's object is
    one too.

    Calling what comes back is calling the function, less a cache of its own.
    """
    made: Any = function
    while True:
        if isinstance(made, functools.partial):
            args, kwargs = (*made.args, *args), {**made.keywords, **kwargs}
            made = made.func
        elif isinstance(made, MethodType):
            made, args = made.__func__, (made.__self__, *args)
        elif isinstance(made, FunctionType) and "cache_options" in made.__dict__:
            made = made.__dict__["__wrapped__"]
        elif not isinstance(made, FunctionType | type) and isinstance(type(made).__call__, FunctionType):
            made, args = type(made).__call__, (made, *args)
        else:
            return ResolvedCall(made, args, kwargs)


def is_cacheable(function: Callable[..., Any]) -> bool:
    """Whether a function has a cache of its own, bound to arguments or to an object or not."""
    made: Any = function
    while isinstance(made, functools.partial | MethodType):
        made = made.func if isinstance(made, functools.partial) else made.__func__
    return isinstance(made, FunctionType) and "cache_options" in made.__dict__


def make_key(call: ResolvedCall, options: CacheOptions) -> Key:
    """The key of a call; a `NoKey` where there is to be none, or an argument has no value that lasts, or the
    result none.
    """
    if options.bypass is not None:
        raise NoKey(options.bypass)
    flags = getattr(getattr(call.function, "__code__", None), "co_flags", 0)
    if flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise NoKey("a generator cannot be kept")
    classes: dict[type, None] = {}
    found: dict[str, str] = {}
    for name, value in _named(call, options).items():
        try:
            found[name] = digest_value(value, files=options.files, classes=classes).hex()
        except Unstable as error:
            text = f"argument {name} of type {type(value).__qualname__} has no stable value"
            raise NoKey(text if error.kind is type(value) else f"{text}: it holds {error}") from None
    try:
        code = code_digest(call.function, version=options.version, files=options.files, classes=classes)
    except Unstable as error:
        raise NoKey(f"the code of {short_name(call.function)} cannot be told: it is {error}") from None
    about = About(function=function_name(call.function), code=code.hex(), arguments=found)
    return Key(hashlib.sha256(_encode((1, about.function, about.code, about.call))).hexdigest(), about)


def function_name(function: Any) -> str:
    """`module.qualname`; a script's functions go by the script's name, whether it is run or imported."""
    code = getattr(function, "__code__", None)
    module = module_label(getattr(function, "__module__", None), getattr(code, "co_filename", None))
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def short_name(function: Any) -> str:
    """What lookups are recorded under: `fit`, `Model.fit`."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).rpartition("<locals>.")[2]


def check_ignored(function: Callable[..., Any], ignore: Sequence[str]) -> None:
    """A `UsageError` where an argument to ignore is none of the function's."""
    signature = _signature(function)
    if signature is None:
        return
    parameters = signature.parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in ignore:
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise UsageError(f"{short_name(function)} has no argument {name!r} to ignore (it has {known})")


def _named(call: ResolvedCall, options: CacheOptions) -> dict[str, Any]:
    """The arguments by name, defaults included; `*args` and `**kwargs` under the names they have."""
    signature = _signature(call.function)
    found: dict[str, Any] = {"args": tuple(call.args), "kwargs": dict(call.kwargs)}
    rest = "kwargs"
    if signature is not None:
        with suppress(TypeError):  # the call itself will say so, unless the signature is not the whole truth
            bound = signature.bind(*call.args, **call.kwargs)
            bound.apply_defaults()
            found = dict(bound.arguments)
            rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
    if options.ignore:
        for name in options.ignore:
            found.pop(name, None)
        if rest in found:
            found[rest] = {name: value for name, value in found[rest].items() if name not in options.ignore}
    return found


_signatures: WeakKeyDictionary[Any, inspect.Signature | None] = WeakKeyDictionary()


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    with suppress(KeyError, TypeError):
        return _signatures[function]
    try:
        found = inspect.signature(function)
    except (ValueError, TypeError):  # a builtin that does not tell
        found = None
    with suppress(TypeError):  # neither hashable nor weakly referable
        _signatures[function] = found
    return found
