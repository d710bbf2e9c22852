"""Digests of arrays and frames, hashed where they lie, without a copy if possible.

An array counts by its type, shape and content in C order, however it lies in memory; a frame by its columns,
their names, types and order, and its index. Padding is no content. These libraries are loaded already:
nothing here imports one that is not. Whatever else they have is taken apart as any object is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from flightlog.session.digest.origins import label
from flightlog.session.digest.values import Digester, Unstable, take_apart

ITEMS_AT_ONCE = 1 << 17

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
    elif kind.char in "gG":  # some of the bytes of extended floats hold nothing
        out.value([repr(item) for item in array.ravel()])
    elif array.size == 0:
        return
    elif array.flags.c_contiguous:
        out.stream(array.reshape(-1).view(np.uint8).data)
    else:
        flags = ["external_loop", "buffered"]
        for chunk in np.nditer(array, flags=flags, order="C", buffersize=ITEMS_AT_ONCE):
            out.stream(np.ascontiguousarray(chunk).view(np.uint8).data)


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


def _arrow(out: Digester, value: Any) -> bool:
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
        return False
    return True


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


def _torch(out: Digester, value: Any) -> bool:
    torch: Any = sys.modules["torch"]

    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        return False
    out.text(b"T", f"{label(type(value))} {value.dtype} {tuple(value.shape)} {value.requires_grad}")
    if value.numel():
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        out.stream(flat.view(torch.uint8).numpy().data)
    return True


LIBRARIES: dict[str, Callable[[Digester, Any], bool]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _arrow,
    "torch": _torch,
}
"""By the first name of the class's module: takes a value, or says that it is none of those it knows."""
