"""The arguments of a Dask task by name, as far as they are numbers and short texts; a look and no more."""

from __future__ import annotations

import inspect
from typing import Any

MAX_TEXT = 200
MAX_ARGUMENTS = 20
_PLAIN: frozenset[Any] = frozenset({int, float, bool, str, type(None)})
_BIG = 1 << 63


class Arguments:
    """Reads the arguments of the tasks of one graph; the names of a function's parameters are looked up
    once.
    """

    def __init__(self) -> None:
        self._names: dict[int, tuple[str, ...]] = {}

    def of(self, spec: Any) -> dict[str, Any] | None:
        """Arguments by name; None where nothing can be said. What is no number or short text is named by its
        type.
        """
        args, kwargs = getattr(spec, "args", None), getattr(spec, "kwargs", None)
        if not isinstance(args, tuple) or not isinstance(kwargs, dict) or not (args or kwargs):
            return None
        names = self._parameters(getattr(spec, "func", None))
        found: dict[str, Any] = {}
        for number, value in enumerate(args[:MAX_ARGUMENTS]):
            found[names[number] if number < len(names) else str(number)] = _glimpse(value)
        for name, value in list(kwargs.items())[:MAX_ARGUMENTS]:
            found[str(name)] = _glimpse(value)
        return found

    def _parameters(self, function: Any) -> tuple[str, ...]:
        known = self._names.get(id(function))
        if known is None:
            try:
                kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                parameters = inspect.signature(function).parameters.values()
                known = tuple(one.name for one in parameters if one.kind in kinds)
            except (TypeError, ValueError):
                known = ()
            self._names[id(function)] = known
        return known


def _glimpse(value: Any) -> Any:
    kind = type(value)
    if kind.__name__ in ("Alias", "TaskRef"):  # the result of another task, by its key
        return str(getattr(value, "target", value.key))[:MAX_TEXT]
    if kind not in _PLAIN:
        return f"<{kind.__name__}>"
    if kind is str and len(value) > MAX_TEXT:
        return value[:MAX_TEXT] + "…"
    return str(value) if kind is int and not -_BIG <= value < _BIG else value
