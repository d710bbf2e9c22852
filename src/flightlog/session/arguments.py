"""A call as it is recorded: the task's name, its arguments by name, and a digest to match it between runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from flightlog.core.redaction import has_own_patterns, is_secret_key
from flightlog.record.values import clean

_SHORT = 16
_encode = msgspec.json.Encoder(order="deterministic").encode


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
            if len(value) > _SHORT or not value.isalnum() or has_own_patterns():
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


_known: WeakKeyDictionary[Any, Parameters] = WeakKeyDictionary()


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
    except Exception:  # noqa: BLE001 - a builtin without a signature, or one of the user's own making that raises
        return Parameters((), None)
    return Parameters(
        tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)),
        next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None),
    )
