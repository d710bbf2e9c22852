"""How any Python value becomes JSON: bounded, redacted, and never fatal.

Numbers, texts, booleans and None stay what they are. Containers become objects and arrays, at most 6 deep,
100 items each and 2,000 values in all; what was cut is said where it was cut. Everything else becomes a short
text. Arrays, tensors and tables are described by type, dtype and shape; their data is not touched, except for
a single number (a zero-dimensional tensor on a device is waited for, as `.item()` does).

Code of the user's runs here: properties, `__repr__`, `__iter__`. Recording code asks objects of the user's
for anything (`str`, `len`, `==`, attributes) only through `ask` and `text_of`, and asks for their class by
`type(value)`, which runs no code of theirs: `value.__class__` and `isinstance` would. Whatever an object
raises, `SystemExit` included, is survived by naming its type alone. What is meant for the program passes
through: see `flightlog.core.interruption`.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar, cast

from flightlog.core.interruption import pass_interruption
from flightlog.core.redaction import REDACTED, is_secret, is_secret_key, redact_text
from flightlog.core.text import words
from flightlog.record.limits import RecordLimits

T = TypeVar("T")
U = TypeVar("U")

_TENSOR_ROOTS = frozenset({"numpy", "torch", "jax", "jaxlib", "cupy", "tensorflow", "mlx"})
_DATA_ROOTS = _TENSOR_ROOTS | words(
    "pandas polars pyarrow xarray dask h5py zarr netCDF4 scipy cudf pyspark vaex"
)
_AS_TEXT = words(
    "datetime.date datetime.time datetime.datetime datetime.timedelta uuid.UUID decimal.Decimal"
    " fractions.Fraction complex ipaddress._IPAddressBase"
)
"""Classes, and so their subclasses, whose `str` says it all. By name: importing them all would cost a
start."""

_ADDRESS = r" at 0x[0-9A-Fa-f]+"
"""Where an object lies says nothing in another process."""


def clean(
    mapping: Mapping[Any, object], *, limit: int = 4096, keys_secret: bool = True
) -> tuple[dict[str, Any], dict[str, str]]:
    """The mapping as a JSON object, and where a float that is no number stood.

    Every value is bounded and redacted, texts to `limit` characters; values of secret names are redacted
    whole. NaN and infinities become None, and the second result maps their dotted path to `"nan"`, `"inf"` or
    `"-inf"`. Keys become texts; keys that would become the same text are told apart by a suffix. Never
    raises, and does not change the mapping.

    With `keys_secret=False` the mapping's own keys are names of metrics or fields, where `token` is nothing
    to hide; the keys of mappings inside it still are.
    """
    if type(mapping) is dict and not mapping:  # as the tags and metrics of most tasks are
        return {}, {}
    walk = _Walk(limit, keys_secret)
    made = walk.value(mapping, ())
    return (made if type(made) is dict else {"value": made}), walk.nonfinite


def represent(value: object, *, limit: int = 4096) -> Any:
    """One value as JSON, by the rules of `clean`. A float that is no number is None; `nonfinite_name` says
    which.
    """
    return _Walk(limit).value(value, ())


def nonfinite_name(x: float) -> str | None:
    """`"nan"`, `"inf"` or `"-inf"`; None for a number."""
    if x - x == 0.0:  # a number minus itself is 0, the others give NaN
        return None
    return "nan" if x != x else ("inf" if x > 0 else "-inf")  # noqa: PLR0124 - only NaN differs from itself


def bounded(text: str, limit: int = 4096) -> str:
    """The text redacted, cut to `limit` characters with a note of how many are missing, and encodable as
    UTF-8.
    """
    window = 4 * limit + 2 * RecordLimits.secret_margin_characters
    missing = max(0, len(text) - window)
    redacted = redact_text(text[:window] if missing else text)
    keep = min(limit, len(redacted) - (RecordLimits.secret_margin_characters if missing else 0))
    missing += len(redacted) - keep
    kept = encodable(redacted[:keep])
    return f"{kept}… [+{missing} characters]" if missing else kept


def ask(question: Callable[..., T], *about: Any, otherwise: U) -> T | U:
    """What a function answers of objects of the user's, or `otherwise` if their code raises anything."""
    try:
        return question(*about)
    except BaseException as error:  # noqa: BLE001 - the user's code runs here: see the module's contract
        pass_interruption(error)
        return otherwise


def text_of(value: object) -> str:
    """The text of anything, whatever its `__str__` does."""
    if type(value) is str:
        return value
    text = ask(str, value, otherwise=None)
    return f"<{type_name(type(value))}>" if text is None else str.__str__(text)  # plain, also of a subclass


def error_text(error: BaseException) -> str:
    """An exception in a line: its class and what it says."""
    return f"{class_name(type(error))}: {text_of(error)}"


def encodable(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold, written out as their escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class _Walk:
    """One pass over a value: what is left to spend, what stands above, and which floats were no numbers."""

    def __init__(self, limit: int, keys_secret: bool = True) -> None:
        self.limit = max(limit, 1)
        self.keys_secret = keys_secret
        self.nonfinite: dict[str, str] = {}
        self._nodes = RecordLimits.max_value_nodes
        self._characters = RecordLimits.max_text_limits_per_value * self.limit
        self._above: set[int] = set()

    def value(self, value: Any, path: tuple[str, ...]) -> Any:
        """Any value; raises nothing of its own."""
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            return self.text(value)
        if kind is int:
            return self.integer(value)
        if kind is float:
            return self.floating(value, path)
        try:
            # Plain containers need none of the questions below: most values come through here.
            if kind is dict or kind is list:
                return self._container(value, "", path)
            return self._other(value, path)
        except BaseException as error:  # noqa: BLE001 - the user's code runs here: see the module's contract
            pass_interruption(error)
            return f"<{type_name(kind)}, unreadable: {type_name(type(error))}>"

    def text(self, value: str) -> str:
        cut = bounded(value, min(self.limit, max(self._characters, RecordLimits.glimpse_characters)))
        self._characters -= len(cut)
        return cut

    def integer(self, value: int) -> int | str:
        if -(2**63) <= value < 2**64:
            return value
        # Decimal digits cost quadratic time, and Python refuses them for very long numbers.
        return str(value) if value.bit_length() <= 4096 else f"<int, {value.bit_length()} bits>"

    def floating(self, value: float, path: tuple[str, ...]) -> float | None:
        name = nonfinite_name(value)
        if name is None:
            return value
        self.nonfinite[".".join(path) or "value"] = name
        return None

    def _other(self, value: Any, path: tuple[str, ...]) -> Any:
        kind = type(value)
        if issubclass(kind, Enum):
            # An enum that is a str or an int stands for its value; of others the name says more.
            mixed = issubclass(kind, str | int | float)
            return self.value(value.value, path) if mixed else self.text(f"{_qualname_of(kind)}.{value.name}")
        # Subclasses may override anything: take the plain number or text inside.
        if issubclass(kind, str):
            return self.text(str.__str__(value))
        if issubclass(kind, int):
            return self.integer(int.__index__(value))
        if issubclass(kind, float):
            return self.floating(float.__float__(value), path)
        if issubclass(kind, bytes | bytearray):
            plain = memoryview(value)
            dots = "…" if plain.nbytes > 8 else ""
            return f"<{type_name(kind)}, {plain.nbytes} bytes: {bytes(plain[:8]).hex()}{dots}>"
        if issubclass(kind, memoryview):
            return f"<memoryview, {value.nbytes} bytes>"
        if issubclass(kind, os.PathLike):
            return self.text(os.fsdecode(value))
        bases = bases_of(kind)
        if any(type_name(base) in _AS_TEXT for base in bases):
            return self.text(value.isoformat() if hasattr(kind, "isoformat") else text_of(value))
        if issubclass(kind, type | FunctionType | BuiltinFunctionType | MethodType | ModuleType):
            return self.text(_name_of(value))
        module = module_of(kind)
        if module == "array":
            return self.text(f"<array {value.typecode} ({len(value)},)>")
        root = module.partition(".")[0]
        if module == "numpy.dtypes" or (root in _TENSOR_ROOTS and class_name(kind) in {"dtype", "device"}):
            return self.text(str(value))
        if hasattr(kind, "shape") and (hasattr(kind, "dtype") or root in _DATA_ROOTS):
            return self._array(value, root, path)
        return self._container(value, root, path)

    def _array(self, value: Any, root: str, path: tuple[str, ...]) -> Any:
        kind = type(value)
        dtype = str(value.dtype).removeprefix("torch.") if hasattr(kind, "dtype") else ""
        shape = tuple(value.shape)
        if shape == () and root in _TENSOR_ROOTS and hasattr(kind, "item"):
            if dtype.startswith(("datetime64", "timedelta64")):
                return self.text(str(value))  # its item is a bare count of nanoseconds
            item = value.item()
            # A long double gives itself.
            return self.value(item, path) if type(item) is not kind else self.text(str(item))
        sizes = ", ".join(str(size) for size in shape) + ("," if len(shape) == 1 else "")
        return self.text(f"<{class_name(kind)}{' ' if dtype else ''}{dtype} ({sizes})>")

    def _container(self, value: Any, root: str, path: tuple[str, ...]) -> Any:
        kind = type(value)
        items: Iterable[Any]
        pairs: Iterable[tuple[Any, Any]] | None = None
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            pairs = zip(kind._fields, tuple.__iter__(value), strict=False)
        elif issubclass(kind, dict):
            pairs = dict.items(value)
        elif plain := next((base for base in (list, tuple, deque) if issubclass(kind, base)), None):
            items = cast(Any, plain).__iter__(value)
        elif issubclass(kind, set | frozenset):
            items = _in_order(value)
        elif root in _DATA_ROOTS:
            return f"<{type_name(kind)}>"  # a repr would print data
        elif issubclass(kind, Mapping):
            pairs = ((key, value[key]) for key in value)
        elif issubclass(kind, Set):
            items = value
        elif (fields := _fields(value)) is not None:
            pairs = fields
        else:
            return self.text(_repr_of(value))
        if id(value) in self._above:
            return f"<cycle: {type_name(kind)}>"
        if len(path) >= RecordLimits.max_value_depth or self._nodes <= 0:
            return f"<{type_name(kind)}{_length(value)}>"
        self._above.add(id(value))
        try:
            return (
                self.mapping(pairs, value, path) if pairs is not None else self._sequence(items, value, path)
            )
        finally:
            self._above.discard(id(value))

    def _sequence(self, items: Iterable[Any], whole: Any, path: tuple[str, ...]) -> list[Any]:
        made: list[Any] = []
        # All at once: another thread may be changing it.
        for item in list(islice(items, RecordLimits.max_value_items + 1)):
            if len(made) == RecordLimits.max_value_items or self._nodes <= 0:
                made.append(_cut_note(whole, len(made)))
                break
            self._nodes -= 1
            made.append(self.value(item, (*path, str(len(made)))))
        return made

    def mapping(self, pairs: Iterable[tuple[Any, Any]], whole: Any, path: tuple[str, ...]) -> dict[str, Any]:
        """Pairs as a JSON object; `whole` is what they come from, whose length says how many are left out."""
        made: dict[str, Any] = {}
        # All at once: another thread may be changing it.
        for key, value in list(islice(pairs, RecordLimits.max_value_items + 1)):
            if len(made) == RecordLimits.max_value_items or self._nodes <= 0:
                made[_unused("…", made, str)] = _cut_note(whole, len(made))
                break
            self._nodes -= 1
            name = key if type(key) is str else _key(key)
            secret = (self.keys_secret or bool(path)) and is_secret_key(name)
            if len(name) > 16 or not (name.isascii() and name.isidentifier()):
                name = bounded(name, RecordLimits.max_key_characters)
            if name in made:
                name = _unused(name, made, type(key))
            self._characters -= len(name)
            if (
                secret
                and value is not None
                and type(value) is not bool
                and (type(value) is not str or is_secret(name, value))
            ):
                made[name] = REDACTED
            else:
                made[name] = self.value(value, (*path, name))
        return made


def _key(key: object) -> str:
    """A key that is no text, as a text; in a walk of its own, so that a NaN in it is not taken for a
    value.
    """
    if issubclass(type(key), float):  # not `isinstance`, which asks the key itself
        return str(float.__float__(cast(float, key)))
    return str(_Walk(RecordLimits.max_key_characters).value(key, ()))


def _unused(name: str, used: Mapping[str, Any], kind: type) -> str:
    if name not in used:
        return name
    name = candidate = f"{name} ({class_name(kind)})"
    number = 2
    while candidate in used:
        candidate, number = f"{name} {number}", number + 1
    return candidate


def _items(number: int) -> str:
    return f"{number} item{'s' * (number != 1)}"


def _cut_note(whole: Any, kept: int) -> str:
    number = ask(len, whole, otherwise=None)
    return "… [more items]" if number is None else f"… [+{_items(number - kept)}]"


def _length(value: Any) -> str:
    number = ask(len, value, otherwise=None)
    return "" if number is None else f", {_items(number)}"


def _in_order(values: set[Any] | frozenset[Any]) -> Iterable[Any]:
    """The same order in every process, where the items can be compared and are not too many to sort."""
    plain: Any = set if issubclass(type(values), set) else frozenset
    items = list(islice(plain.__iter__(values), 10 * RecordLimits.max_value_items + 1))
    return items if len(items) > 10 * RecordLimits.max_value_items else ask(sorted, items, otherwise=items)


def _fields(value: Any) -> list[tuple[str, Any]] | None:
    """Names and values of a dataclass, an attrs class or a msgspec struct; None for anything else.

    A field that its class keeps out of the repr is kept out of the record.
    """
    kind = type(value)
    shown: list[tuple[str, bool]]
    if hasattr(kind, "__struct_fields__"):
        shown = [(name, True) for name in kind.__struct_fields__]
    elif hasattr(kind, "__attrs_attrs__"):
        shown = [(field.name, bool(field.repr)) for field in kind.__attrs_attrs__]
    elif hasattr(kind, "__dataclass_fields__"):
        shown = [(field.name, field.repr) for field in sys.modules["dataclasses"].fields(value)]
    else:
        return None
    return [(name, _field(value, name) if visible else "<not shown>") for name, visible in shown]


def _field(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except BaseException as error:  # noqa: BLE001 - a descriptor of the user's, or a field never set
        pass_interruption(error)
        return f"<unreadable: {type_name(type(error))}>"


def _repr_of(value: Any) -> str:
    kind: Any = type(value)
    if kind.__repr__ is object.__repr__:
        return f"<{type_name(kind)}>"
    return re.sub(_ADDRESS, "", str.__str__(repr(value)))


def _name_of(value: Any) -> str:
    if issubclass(type(value), type):
        return f"<class {module_of(value)}.{_qualname_of(value)}>"
    if issubclass(type(value), ModuleType):
        return f"<module {value.__name__}>"
    return f"<function {value.__module__}.{value.__qualname__}>"


# What a class is called, and what it is made of, as Python knows it: a metaclass may answer otherwise, or
# raise.
_get_name, _get_qualname, _get_module, bases_of = (
    cast(Callable[[type], Any], cast(Any, type.__dict__[name]).__get__)
    for name in ("__name__", "__qualname__", "__module__", "__mro__")
)


def class_name(kind: type) -> str:
    """A class's own name, without its module."""
    return encodable(str.__str__(_get_name(kind))[:200])


def _qualname_of(kind: type) -> str:
    return str.__str__(_get_qualname(kind))


def module_of(kind: type) -> str:
    """The module that a class says it is from; empty where it says no text."""
    module = ask(_get_module, kind, otherwise="")  # none has one whose class has taken it away
    return module if type(module) is str else ""


def type_name(kind: type) -> str:
    """A class's name, with its module unless built in; bounded and encodable."""
    module, name = module_of(kind), _qualname_of(kind)
    return encodable((name if module in ("builtins", "") else f"{module}.{name}")[:200])
