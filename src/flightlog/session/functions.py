"""The source of a function as it stands in its file, found without importing anything."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct


class LockedFunction(Struct, frozen=True, kw_only=True):
    """A function's source, by its hash."""

    sha256: str | None
    """Of the dedented source with its decorators; None where there is no source to be had."""
    file: str | None
    """Relative to the manifest's folder where it lies below it; None for code typed in."""


def lock_function(function: Callable[..., Any], folder: Path) -> tuple[str, LockedFunction]:
    """The function's full name and its hash. Wrappers and partials are looked through. Never raises."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner) if not isinstance(inner, type) else inner
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    name = f"{inner.__module__}.{inner.__qualname__}"
    try:
        file = Path(inspect.getsourcefile(inner) or "")
    except TypeError:  # a builtin
        return name, LockedFunction(sha256=None, file=None)
    source = source_in(file, inner.__qualname__) if file.is_file() else None
    if source is not None:
        return name, LockedFunction(sha256=_hash(source), file=_relative(file.absolute(), folder))
    try:
        return name, LockedFunction(sha256=_hash(textwrap.dedent(inspect.getsource(inner))), file=None)
    except (OSError, TypeError):
        return name, LockedFunction(sha256=None, file=None)


def relock_function(name: str, before: LockedFunction, folder: Path) -> LockedFunction:
    """The same function as it stands in its file now; without a hash where it is gone or was in no file."""
    if before.file is None:
        return LockedFunction(sha256=None, file=None)
    parts = name.split(".")
    # The module's part of the name has no mark of its own: the longest name that the file knows is the
    # function's.
    for start in range(1, len(parts)):
        source = source_in(folder / before.file, ".".join(parts[start:]))
        if source is not None:
            return LockedFunction(sha256=_hash(source), file=before.file)
    return LockedFunction(sha256=None, file=before.file)


def source_in(file: Path, qualname: str) -> str | None:
    """The dedented source of what bears this name in a file, decorators included; of all, where several do.

    None where the file cannot be read or parsed, or knows no such name.
    """
    try:
        text = file.read_bytes().decode()
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    wanted = [part for part in qualname.split(".") if part != "<locals>"]
    lines = text.splitlines()
    found = []
    for node in _named(tree, wanted):
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        block = [line.rstrip() for line in lines[first - 1 : node.end_lineno]]
        found.append(textwrap.dedent("\n".join(block)))
    return "\n".join(found) if found else None


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _named(node: ast.AST, path: list[str]) -> Iterator[_Definition]:
    """The definitions at this path of names, inside `if`, `try` and `with` too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if child.name == path[0]:
                if len(path) == 1:
                    yield child
                else:
                    yield from _named(child, path[1:])
        else:
            yield from _named(child, path)


def _hash(source: str) -> str:
    return sha256(source.encode()).hexdigest()


def _relative(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(file)
