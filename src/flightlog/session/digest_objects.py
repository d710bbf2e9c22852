"""Digests of what is no plain value: files, by their content, and objects, taken apart as `pickle` would."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import os
import stat
from collections import OrderedDict
from pathlib import Path, PurePath
from types import FunctionType
from typing import Any

from flightlog.session.code_origin import origin_of
from flightlog.session.digest import Digester, Unstable, label, module_label

CHUNK = 1 << 20


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


def file_digest(path: str) -> bytes:
    """The digest of a regular file's content; an OSError for anything else."""
    hashed = hashlib.sha256()
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer must not block
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - of a descriptor
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(path)
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is no regular file")
        buffer = bytearray(CHUNK)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            hashed.update(view[:count])
    return hashed.digest()


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
            module = getattr(value, "__module__", None)
            out.text(b"g", f"{module_label(module)}.{reduced}")
            out.text(b"g", origin_of(module) or label(cls))
            return
        make, args, state, items, pairs = (*reduced, None, None, None)[:5]
        found = None if items is None else list(items)
        mapped = None if pairs is None else list(pairs)
    except RecursionError:
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
    ordered = isinstance(value, OrderedDict) or not isinstance(value, dict)
    out.value(mapped if ordered or mapped is None else dict(mapped))


def _maker(out: Digester, make: Any) -> None:
    """Take what would make the object again: a library's function by name, any other by its code."""
    module = getattr(make, "__module__", None)
    if isinstance(make, FunctionType | type) and origin_of(module) is not None:
        out.text(b"g", label(make))
    else:
        out.value(make)


def _without_caches(cls: type, state: Any) -> Any:
    """An object's state less what `functools.cached_property` has left there: whether it was asked is no value."""
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict | None):
        return (_without_caches(cls, state[0]), state[1])
    if type(state) is not dict:
        return state
    cached = [name for name in state if isinstance(getattr(cls, str(name), None), functools.cached_property)]
    return {name: item for name, item in state.items() if name not in cached} if cached else state
