"""Values by type and content, as 256-bit digests: the same in every process, on every host and every day.

Equal are values of the same type with the same content: `1`, `1.0`, `True` and `"1"` are four values, `0.0`
and `-0.0` two, NaN is one. Sets count without their order, dictionaries with it: code can see it. What the
standard containers do not cover is taken apart as `pickle` would, so that the text of a pickle (which depends
on what is shared and on the order of sets) never counts. SHA-256 it is: with the instructions today's
processors have for it, twice as fast as BLAKE2b.
"""

from __future__ import annotations

import enum
import hashlib
import os
import struct
import sys
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import ne
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal

Files = Literal["content", "path"]
"""How a path to a file counts: by the file's name and content, or by the path's text alone."""

BUFFER = 1 << 16
PACKED = 16
"""Lists of this length and longer are packed where all items are of one plain type."""

PLAIN: frozenset[type] = frozenset({bool, int, float, str, bytes, type(None)})
_double = struct.Struct(">d").pack
_size = struct.Struct(">Q").pack


ITEMS_AT_ONCE = 1 << 17


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
        if len(data) > BUFFER:
            self.stream(data)
        else:
            buffer += data
            if len(buffer) > BUFFER:
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
                from flightlog.session.digest.objects import take_parts

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
        cls = type(value)
        if isinstance(value, type | FunctionType | ModuleType):
            from flightlog.session.digest.code import walk

            walk(self, value)
        elif isinstance(value, enum.Enum):
            self.of_class(cls)
            self.value(value._value_)
        elif isinstance(value, os.PathLike):
            from flightlog.session.digest.objects import take_path

            take_path(self, value)
        elif isinstance(value, set | frozenset):
            self.of_class(cls)
            self.unordered(b"S", value)
            self.value(getattr(value, "__dict__", None))
        elif not self._foreign(value):
            from flightlog.session.digest.code import wrapped_by_library
            from flightlog.session.digest.objects import take_apart

            identity = self._enter(value)
            wrapped = wrapped_by_library(value)
            if wrapped is not None:
                self.of_class(cls)
                self.value(wrapped)
            else:
                take_apart(self, value)
            self._open.discard(identity)

    def _foreign(self, value: Any) -> bool:
        """Take a value of a library whose data lies in large arrays; whether it was one."""
        library = type(value).__module__.partition(".")[0]
        take = _LIBRARIES.get(library)
        return take is not None and take(self, value)


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


def label(of: Any) -> str:
    """`module.qualname` of a class or function; scripts count under their file's name, run or imported."""
    return f"{module_label(getattr(of, '__module__', None))}.{getattr(of, '__qualname__', of)}"


def module_label(module: str | None, file: str | None = None) -> str:
    """A module's name; of the script that runs (`__main__`) the name it would be imported by, where it has a
    file.
    """
    if module not in ("__main__", "__mp_main__"):
        return module or ""
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if file is None and spec is not None:
        return str(spec.name)
    path = file if file is not None else getattr(main, "__file__", None)
    return Path(path).stem if path and not path.startswith("<") else "__main__"


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
        if len(value) >= PACKED and _pack(out, tag, value):
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


def _set(tag: bytes) -> Callable[[Digester, Any], None]:
    def take(out: Digester, value: Any) -> None:
        if PLAIN.issuperset(map(type, value)):
            found = []
            for item in value:
                one = Digester()
                one.value(item)
                found.append(one.digest())
            out.put(tag, b"".join(sorted(found)))
        else:
            out.unordered(tag, value)

    return take


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
    set: _set(b"e"),
    frozenset: _set(b"f"),
    dict: _dict,
    CodeType: _code,
}


# --- arrays and frames, hashed where they lie, without a copy if possible: an array counts by its type, shape
# and content in C order, however it lies in memory; a frame by its columns, their names, types and order, and
# its index. Padding is no content. These libraries are loaded already: nothing here imports one that is not.


# --- NumPy


def _numpy(out: Digester, value: Any) -> bool:
    np: Any = sys.modules["numpy"]

    if type(value) in (np.ndarray, np.memmap):
        _array(out, value)
    elif isinstance(value, np.generic):
        out.put(b"1")
        _array(out, np.asarray(value))
    else:
        return False
    return True


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
    elif kind.char in "gG":
        for part in (array.real, array.imag) if kind.char == "G" else (array,):
            _extended(out, part)
    elif array.size == 0:
        return
    elif array.flags.c_contiguous:
        out.stream(array.reshape(-1).view(np.uint8).data)
    else:
        flags = ["external_loop", "buffered"]
        for chunk in np.nditer(array, flags=flags, order="C", buffersize=ITEMS_AT_ONCE):
            out.stream(np.ascontiguousarray(chunk).view(np.uint8).data)


def _extended(out: Digester, array: Any) -> None:
    """Take extended floats by exponent and mantissa: some of the bytes they take hold nothing."""
    np: Any = sys.modules["numpy"]

    rest, exponents = np.frexp(array)
    _array(out, exponents)
    for _ in range(3):  # 53 bits each
        part = rest.astype("f8")
        _array(out, part)
        with np.errstate(invalid="ignore"):  # infinity less infinity
            rest = rest - part


# --- pandas


def _pandas(out: Digester, value: Any) -> bool:
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
        return False
    return True


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


def _polars(out: Digester, value: Any) -> bool:
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
        return False
    return True


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


class _Sink:
    """Where Arrow writes to, and nothing is kept."""

    closed = False

    def __init__(self, out: Digester) -> None:
        self._out = out

    def write(self, data: Any) -> int:
        self._out.stream(data)
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _arrow(out: Digester, value: Any) -> bool:
    pa: Any = sys.modules["pyarrow"]

    if isinstance(value, pa.Array | pa.ChunkedArray):
        table = pa.table({"": value})
    elif isinstance(value, pa.RecordBatch):
        table = pa.Table.from_batches([value])
    elif isinstance(value, pa.Table):
        table = value
    else:
        return False
    out.text(b"T", f"{label(type(value))} {table.shape}")
    table = table.combine_chunks()  # how it is cut into pieces is no content
    with pa.ipc.new_stream(pa.PythonFile(_Sink(out), "w"), table.schema) as writer:
        writer.write_table(table)
    return True


# --- PyTorch


def _torch(out: Digester, value: Any) -> bool:
    torch: Any = sys.modules["torch"]

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return False
    out.text(b"T", f"{label(type(value))} {value.dtype} {tuple(value.shape)} {value.requires_grad}")
    if value.numel():
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        out.stream(flat.view(torch.uint8).numpy().data)
    return True


_LIBRARIES: dict[str, Callable[[Digester, Any], bool]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _arrow,
    "torch": _torch,
}
