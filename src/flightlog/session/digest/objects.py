"""Digests of what is no plain value: files, by their content, and objects, taken apart as `pickle` would."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePath
from types import FunctionType, MappingProxyType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any

from flightlog.session.digest.code import origin_of
from flightlog.session.digest.values import Digester, Unstable, label, module_label

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
