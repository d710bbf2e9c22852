"""Values by type and content, as 256-bit digests: the same in every process, on every host and every day.

Equal are values of the same type with the same content: `1`, `1.0`, `True` and `"1"` are four values, `0.0`
and `-0.0` two, NaN is one. Sets count without their order, dictionaries with it: code can see it. What the
standard containers do not cover is taken apart as `pickle` would, so that the text of a pickle (which depends
on what is shared and on the order of sets) never counts. SHA-256 it is: with the instructions today's
processors have for it, twice as fast as BLAKE2b.

An array counts by its type, shape and content in C order, however it lies in memory, and is hashed where it
lies, without a copy if possible; a frame by its columns, their names, types and order, and its index. Padding
is no content. Their libraries are loaded already: nothing here imports one that is not. Whatever else they
have is taken apart as any object is.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import os
import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import ne
from pathlib import Path, PurePath
from types import (
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, Literal

from flightlog.session.digest.origins import file_digest, label, module_label, origin_of
from flightlog.session.limits import SessionLimits

Files = Literal["content", "path"]
"""How a path to a file counts: by the file's name and content, or by the path's text alone."""

PLAIN: frozenset[type] = frozenset({bool, int, float, str, bytes, type(None)})
_double = struct.Struct(">d").pack
_size = struct.Struct(">Q").pack


class Unstable(Exception):  # noqa: N818 - says what the value is
    """A value that has no digest; the text says which part of it, and why. `kind` is the class of that
    part.
    """

    def __init__(self, text: str, kind: type | None = None) -> None:
        super().__init__(text)
        self.kind = kind


class Digester:
    """Takes values one after another and gives the digest of all of them; not thread-safe.

    `classes` collects the classes of the objects in them: their code counts too, though not as a value.
    Functions and classes that are values count by their code, for which `walk` of `code_digest` is called.
    """

    def __init__(
        self,
        files: Files = "content",
        classes: dict[type, None] | None = None,
        seen: dict[int, int] | None = None,
    ) -> None:
        self.files: Files = files
        self.classes: dict[type, None] = {} if classes is None else classes
        self.seen: dict[int, int] = {} if seen is None else seen
        """Functions and classes by identity, numbered as they were met: each is taken apart once."""
        self.waiting: deque[Any] = deque()
        """Those that were met and not yet taken apart: a queue, since chains of calls are longer than
        stacks."""
        self.kept: list[Any] = []
        """What `seen` speaks of, alive for as long as its identity counts."""
        self.taken_apart = False
        """Whether some value was taken apart by its own code, which may answer otherwise another time."""
        self.of_code = False
        """Whether code refers to the values that are taken: folders count by name then."""
        self.in_parts: dict[int, int] = {}
        """What was taken part by part, by identity, numbered as it was met: once each, so that rings come to
        an end."""
        self._open: set[int] = set()
        self._hash = hashlib.sha256()
        self._buffer = bytearray()

    def digest(self) -> bytes:
        """32 bytes of all that was taken so far."""
        self.drain()
        return self._so_far()

    def drain(self) -> None:
        """Take the functions and classes that were met on the way."""
        if self.waiting:
            from flightlog.session.digest.code import expand

            while self.waiting:
                expand(self, self.waiting.popleft())

    def _so_far(self) -> bytes:
        self._flush()
        return self._hash.digest()

    def put(self, tag: bytes, data: bytes = b"") -> None:
        """Take raw bytes under a tag of one character."""
        buffer = self._buffer
        buffer += tag
        buffer += _size(len(data))
        if len(data) > SessionLimits.digest_buffer_bytes:
            self.stream(data)
        else:
            buffer += data
            if len(buffer) > SessionLimits.digest_buffer_bytes:
                self._flush()

    def text(self, tag: bytes, text: str) -> None:
        """Take a text under a tag of one character."""
        self.put(tag, text.encode("utf-8", "surrogatepass"))

    def stream(self, data: Any) -> None:
        """Take a buffer of a size that stands elsewhere, without a copy."""
        self._flush()
        self._hash.update(data)

    def value(self, value: Any) -> None:
        """Take a value; an `Unstable` where it has none that lasts."""
        known = _KINDS.get(type(value))  # not `__class__`, which may pretend
        if known is not None:
            known(self, value)
        else:
            self._other(value)

    def apart(self, value: Any) -> bytes:
        """The digest of a value as it would be in this place, without taking it."""
        other = Digester()
        if type(value) not in PLAIN:  # which speak of nothing else
            other = Digester(self.files, dict(self.classes), dict(self.seen))
            other.of_code, other._open = self.of_code, set(self._open)
        other.value(value)
        self.classes.update(other.classes)
        self.taken_apart |= other.taken_apart
        return other.digest()

    def tolerant(self, value: Any) -> None:
        """Take a value that code refers to; part by part, and by its class, where it has no value that
        lasts.
        """
        known = self.in_parts.get(id(value))
        if known is not None:
            self.put(b"?", str(known).encode())
            return
        seen, classes = len(self.seen), len(self.classes)
        other = Digester(self.files, self.classes, self.seen)
        other.of_code, other._open = True, set(self._open)
        try:
            other.value(value)
        except (Unstable, RecursionError) as error:
            for met, before in ((self.seen, seen), (self.classes, classes)):
                while len(met) > before:  # as if it had not been looked at
                    met.popitem()
            self.text(b"?", label(type(value)))
            self.in_parts[id(value)] = len(self.in_parts)
            self.kept.append(value)
            if isinstance(error, Unstable):
                with suppress(RecursionError):  # what is deeper does not count
                    take_parts(self, value)
            return
        self.kept += (value, *other.kept)
        self.waiting += other.waiting
        self.put(b"v", other._so_far())

    def of_class(self, cls: type) -> None:
        """Take the name of an object's class, and remember the class."""
        self.classes[cls] = None
        self.text(b"T", label(cls))

    def _flush(self) -> None:
        self._hash.update(self._buffer)
        self._buffer.clear()

    def _enter(self, value: Any) -> int:
        identity = id(value)
        if identity in self._open:
            raise Unstable(f"a {label(type(value))} that holds itself")
        self._open.add(identity)
        return identity

    def unordered(self, tag: bytes, values: Iterable[Any]) -> None:
        """Take values without their order."""
        found = sorted(map(self.apart, values))
        self.put(tag, b"".join(found))

    def _other(self, value: Any) -> None:
        from flightlog.session.digest.code import walk

        cls = type(value)
        if isinstance(value, type | FunctionType | ModuleType):
            walk(self, value)
        elif isinstance(value, enum.Enum):
            self.of_class(cls)
            self.value(value._value_)
        elif isinstance(value, os.PathLike):
            take_path(self, value)
        elif isinstance(value, set | frozenset):
            self.of_class(cls)
            self.unordered(b"S", value)
            self.value(getattr(value, "__dict__", None))
        else:
            LIBRARIES.get(cls.__module__.partition(".")[0], Digester.take_object)(self, value)

    def take_object(self, value: Any) -> None:
        """Take an object part by part."""
        from flightlog.session.digest.code import wrapped_by_library

        identity = self._enter(value)
        wrapped = wrapped_by_library(value)
        if wrapped is not None:
            self.of_class(type(value))
            self.value(wrapped)
        else:
            take_apart(self, value)
        self._open.discard(identity)


def digest_value(value: Any, *, files: Files = "content", classes: dict[type, None] | None = None) -> bytes:
    """The digest of one value, 32 bytes; an `Unstable` where it has none that lasts.

    A value that is taken apart by code of its own class is asked twice, and must answer the same.
    """
    first = Digester(files, classes)
    try:
        first.value(value)
        found = first.digest()
        if first.taken_apart:
            again = Digester(files)
            again.value(value)
            if again.digest() != found:
                raise Unstable(f"a {label(type(value))} whose value changes from one look to the next")
    except RecursionError:
        raise Unstable("values nested too deeply") from None
    return found


# --- plain values


def _float(out: Digester, value: float) -> None:
    out.put(b"d", _double(value) if value == value else b"nan")  # noqa: PLR0124 - all NaN are one


def _complex(out: Digester, value: complex) -> None:
    out.put(b"z")
    _float(out, value.real)
    _float(out, value.imag)


def _memoryview(out: Digester, value: memoryview) -> None:
    out.text(b"m", f"{value.format} {value.shape}")
    out.put(b"m", value.tobytes())


# --- containers


def _sequence(tag: bytes) -> Callable[[Digester, Any], None]:
    def take(out: Digester, value: Any) -> None:
        if len(value) >= SessionLimits.min_packed_items and _pack(out, tag, value):
            return
        identity = out._enter(value)
        out.put(tag, _size(len(value)))
        for item in value:
            out.value(item)
        out._open.discard(identity)

    return take


def _pack(out: Digester, tag: bytes, value: Any) -> bool:
    """Take a long sequence of one plain type at once; whether that was possible."""
    kinds = set(map(type, value))
    if len(kinds) != 1:
        return False
    kind = kinds.pop()
    if kind is float and not any(map(ne, value, value)):
        packed = array("d", value)
    elif kind is int:
        try:
            packed = array("q", value)
        except OverflowError:
            return False
    elif kind is str:
        packed = array("q", map(len, value))
    else:
        return False
    if sys.byteorder != "big":
        packed.byteswap()
    out.put(tag + (b"s" if kind is str else packed.typecode.encode()), packed.tobytes())
    if kind is str:
        out.text(b"s", "".join(value))
    return True


def _dict(out: Digester, value: dict[Any, Any]) -> None:
    identity = out._enter(value)
    out.put(b"D", _size(len(value)))
    for key, item in value.items():
        out.value(key)
        out.value(item)
    out._open.discard(identity)


def _code(out: Digester, code: CodeType) -> None:
    from flightlog.session.digest.code import static_digest

    out.put(b"c", static_digest(code))


_KINDS: dict[type, Callable[[Digester, Any], None]] = {
    type(None): lambda out, _: out.put(b"N"),
    bool: lambda out, value: out.put(b"B", b"1" if value else b"0"),
    int: lambda out, value: out.put(b"i", value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True)),
    float: _float,
    complex: _complex,
    str: lambda out, value: out.text(b"s", value),
    bytes: lambda out, value: out.put(b"b", value),
    bytearray: lambda out, value: out.put(b"y", bytes(value)),
    memoryview: _memoryview,
    list: _sequence(b"L"),
    tuple: _sequence(b"t"),
    set: lambda out, value: out.unordered(b"e", value),
    frozenset: lambda out, value: out.unordered(b"f", value),
    dict: _dict,
    CodeType: _code,
}


# --- files, and objects taken apart as `pickle` would


def take_path(out: Digester, value: os.PathLike[Any]) -> None:
    """Take a path: the name and content of the file there, or its text; see `Files`."""
    text = os.fsdecode(os.fspath(value))
    if out.files == "path" or (isinstance(value, PurePath) and not isinstance(value, Path)):
        out.text(b"p", text)
        return
    try:
        content = file_digest(text)
    except FileNotFoundError:
        out.text(b"p", text)
    except IsADirectoryError:
        if out.of_code:
            out.text(b"p", text)
            return
        raise Unstable(
            f"the folder {text}, whose content is not looked at (name it as str, or say files='path')"
        ) from None
    except OSError as error:
        raise Unstable(f"the file {text}, which cannot be read ({error.strerror or error})") from None
    else:
        out.text(b"P", os.path.basename(text))  # noqa: PTH119 - any PathLike
        out.put(b"P", content)


def take_apart(out: Digester, value: Any) -> None:
    """Take an object as `pickle` would take it apart, with the names of its classes and functions."""
    cls = type(value)
    if cls is object:
        raise Unstable("an object without a value", cls)
    out.taken_apart = True
    try:
        reduce = copyreg.dispatch_table.get(cls)
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        if isinstance(reduced, str):
            _by_name(out, value, reduced)
            return
        make, args, state, items, pairs = (*reduced, None, None, None)[:5]
        found = None if items is None else list(items)
        mapped = None if pairs is None else list(pairs)
    except (RecursionError, Unstable):
        raise
    except Exception as error:  # noqa: BLE001 - the user's own code, which may raise anything
        raise Unstable(
            f"a {label(cls)}, which cannot be pickled ({type(error).__name__}: {error})", cls
        ) from None
    out.of_class(cls)
    if make is not cls:
        _maker(out, make)
    # Its own class is no part of its value: the class's code counts with the code.
    out.value(tuple(None if part is cls else part for part in args))
    out.value(_without_caches(cls, state))
    out.value(found)
    out.value(mapped)


def _by_name(out: Digester, value: Any, name: str) -> None:
    """Take what `pickle` knows by name alone: the name, and where it is the project's, its class and state
    too.
    """
    cls = type(value)
    module = getattr(value, "__module__", None)
    origin, of_class = origin_of(module), origin_of(cls.__module__)
    if origin is None and module is not None and of_class is not None and cls.__module__ != "typing":
        raise Unstable(f"a {label(cls)} named {name}, whose code cannot be seen", cls)
    out.text(b"g", f"{module_label(module)}.{name}")
    out.text(b"g", origin or label(cls))
    if origin is None and of_class is None:
        out.of_class(cls)
        out.value(_state(value))


def take_parts(out: Digester, value: Any) -> None:
    """Take what has no value as a whole, as far as its parts have one: those of a container, or of a
    project's object.

    A library's object has none: what it holds is its own business, and may change while it is used.
    """
    cls = type(value)
    parts: list[Any] = []
    # By the class and with the base's methods: an object may pretend to be another, and have methods of its
    # own.
    if issubclass(cls, dict):
        parts = [part for pair in dict.items(value) for part in pair]
    elif cls is MappingProxyType:
        parts = [part for pair in value.items() for part in pair]
    elif found := [base for base in (list, tuple, deque, set, frozenset) if issubclass(cls, base)]:
        parts = list(found[0].__iter__(value))
        if found[0] in (set, frozenset):
            _set_parts(out, parts)
            parts = []
    elif issubclass(cls, functools.partial):
        parts = [value.func, value.args, value.keywords]
    elif cls is MethodType:
        parts = [value.__func__, value.__self__]
    elif issubclass(cls, PurePath):
        parts = [str(value)]
    for part in parts:
        out.tolerant(part)
    if origin_of(cls.__module__) is None or cls is SimpleNamespace:
        out.of_class(cls)
        for name, part in _state(value).items():
            out.text(b"n", name)
            out.tolerant(part)


def _set_parts(out: Digester, value: Iterable[Any]) -> None:
    """Take a set's items without their order; those without a value by their class alone."""
    found = []
    for item in value:
        try:
            found.append(out.apart(item))
        except (Unstable, RecursionError):
            found.append(label(type(item)).encode())
    for one in sorted(found):
        out.put(b"?", one)


def _state(value: Any) -> dict[str, Any]:
    """An object's attributes and slots by name, in order of name."""
    cls = type(value)
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType):
                with suppress(AttributeError):  # a slot that holds nothing
                    found[name] = member.__get__(value, cls)
    held = None
    with suppress(Exception):  # an object may answer for another one that is not there
        held = vars(value)
    if type(held) is dict:
        found.update((str(name), part) for name, part in _without_caches(cls, held).items())
    return dict(sorted(found.items()))


def _maker(out: Digester, make: Any) -> None:
    """Take what would make the object again: a library's function by name, any other by its code."""
    module = getattr(make, "__module__", None)
    if isinstance(make, FunctionType | type) and origin_of(module) is not None:
        out.text(b"g", label(make))
    else:
        out.value(make)


def _without_caches(cls: type, state: Any) -> Any:
    """An object's state, attributes in order of name, less what is no part of its value.

    That is what `functools.cached_property` has left there, asked or not, and what `functools.wraps` copies
    from a function that is in the state itself.
    """
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict | None):
        return (_without_caches(cls, state[0]), state[1])
    if type(state) is not dict:
        return state
    left_out = {
        name for name in state if isinstance(getattr(cls, str(name), None), functools.cached_property)
    }
    if "__wrapped__" in state:
        left_out.update(functools.WRAPPER_ASSIGNMENTS)
    names = sorted((name for name in state if name not in left_out), key=str)
    return {name: state[name] for name in names}


# --- NumPy


def _numpy(out: Digester, value: Any) -> None:
    np: Any = sys.modules["numpy"]

    if type(value) in (np.ndarray, np.memmap):
        _array(out, value)
    elif isinstance(value, np.generic):
        out.put(b"1")
        _array(out, np.asarray(value))
    else:
        out.take_object(value)


def _array(out: Digester, array: Any) -> None:
    """Take an array: its type and shape, then its content."""
    np: Any = sys.modules["numpy"]

    kind = array.dtype
    out.text(b"A", f"{kind.str if kind.names is None else kind.descr} {array.shape}")
    if kind.names is not None:
        for name in kind.names:  # field by field: what lies between them is no content
            _array(out, array[name])
    elif kind.hasobject or kind.kind == "T":
        out.value(array.ravel().tolist())
    elif kind.char in "gG":  # some of the bytes of extended floats hold nothing
        out.value([repr(item) for item in array.ravel()])
    elif array.size == 0:
        return
    elif array.flags.c_contiguous:
        out.stream(array.reshape(-1).view(np.uint8).data)
    else:
        flags = ["external_loop", "buffered"]
        for chunk in np.nditer(array, flags=flags, order="C", buffersize=SessionLimits.digest_array_items):
            out.stream(np.ascontiguousarray(chunk).view(np.uint8).data)


# --- pandas


def _pandas(out: Digester, value: Any) -> None:
    pd: Any = sys.modules["pandas"]

    cls = type(value)
    if cls is pd.DataFrame:
        out.text(b"T", label(cls))
        out.value(value.attrs)
        _index(out, value.columns)
        _index(out, value.index)
        for number in range(value.shape[1]):
            _column(out, value.iloc[:, number].array)
    elif cls is pd.Series:
        out.text(b"T", label(cls))
        out.value((value.name, value.attrs))
        _index(out, value.index)
        _column(out, value.array)
    elif isinstance(value, pd.Index):
        _index(out, value)
    elif isinstance(value, pd.api.extensions.ExtensionArray):
        _column(out, value)
    else:
        out.take_object(value)


def _index(out: Digester, index: Any) -> None:
    out.text(b"T", label(type(index)))
    out.value((list(index.names), str(getattr(index, "freq", None))))
    for level in range(index.nlevels):
        _column(out, index.get_level_values(level).array)


def _column(out: Digester, column: Any) -> None:
    """Take the values of a column or of a level of an index."""
    np: Any = sys.modules["numpy"]
    pd: Any = sys.modules["pandas"]

    kind = column.dtype
    out.text(b"C", f"{label(type(kind))} {kind}")
    if isinstance(kind, np.dtype):
        _array(out, column.to_numpy())
    elif isinstance(kind, pd.CategoricalDtype):
        _array(out, column.codes)
        _column(out, column.categories.array)
        out.value(column.ordered)
    elif isinstance(kind, pd.DatetimeTZDtype):
        _array(out, column.to_numpy(dtype=f"datetime64[{kind.unit}]"))
    elif isinstance(getattr(kind, "numpy_dtype", None), np.dtype) and kind.numpy_dtype.kind in "biufc":
        missing = np.asarray(column.isna())
        _array(out, missing)
        _array(out, column.to_numpy(dtype=kind.numpy_dtype, na_value=kind.numpy_dtype.type(0)))
    else:
        out.value(column.astype(object).tolist())


# --- Polars


def _polars(out: Digester, value: Any) -> None:
    pl: Any = sys.modules["polars"]

    if isinstance(value, pl.LazyFrame):
        raise Unstable(f"a {label(type(value))}, which holds a plan and no data")
    if type(value) is pl.DataFrame:
        out.text(b"T", f"{label(type(value))} {value.shape}")
        for series in value.get_columns():
            _series(out, series)
    elif type(value) is pl.Series:
        _series(out, value)
    else:
        out.take_object(value)


def _series(out: Digester, series: Any) -> None:
    kind = series.dtype
    out.text(b"C", f"{kind!r} {len(series)}")
    out.text(b"n", series.name)
    if not (kind.is_numeric() or kind.is_temporal()) or kind.is_decimal():
        out.value(series.to_list())
        return
    series = series.to_physical()
    _array(out, series.is_null().to_numpy())
    _array(out, series.fill_null(0).to_numpy())


# --- Arrow


def _arrow(out: Digester, value: Any) -> None:
    pa: Any = sys.modules["pyarrow"]

    # How it is cut into pieces is no content, nor is what it was cut from.
    if isinstance(value, pa.Array):
        take_apart(out, _own_buffers(pa, value))
    elif isinstance(value, pa.RecordBatch):
        out.text(b"T", label(type(value)))
        take_apart(out, pa.Table.from_batches([value]))
    elif isinstance(value, pa.Table):
        take_apart(out, value)  # by its columns, which are chunked arrays
    elif isinstance(value, pa.ChunkedArray):
        combined = value.combine_chunks()
        take_apart(out, _own_buffers(pa, combined) if isinstance(combined, pa.Array) else combined)
    else:
        out.take_object(value)


def _own_buffers(pa: Any, array: Any) -> Any:
    """The same content in buffers that hold nothing else, as a stream of Arrow's writes and reads them; the
    array itself where Arrow cannot do that for its type.
    """
    try:
        batch = pa.record_batch([pa.concat_arrays([array])], ["array"])
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write_batch(batch)
        return pa.ipc.open_stream(stream.getvalue()).read_next_batch().column(0)
    except pa.ArrowException:
        return array


# --- PyTorch


def _torch(out: Digester, value: Any) -> None:
    torch: Any = sys.modules["torch"]

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        out.take_object(value)
        return
    out.text(b"T", f"{label(type(value))} {value.dtype} {tuple(value.shape)} {value.requires_grad}")
    if value.numel():
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        out.stream(flat.view(torch.uint8).numpy().data)


LIBRARIES: dict[str, Callable[[Digester, Any], None]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _arrow,
    "torch": _torch,
}
"""By the first name of the class's module: takes a value, or what it does not know as any object."""
