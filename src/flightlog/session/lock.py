"""The lock: what a run was made of, and what differs from it now."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.core.errors import RunNotFound
from flightlog.record.environment import Environment
from flightlog.session.expansion import expand
from flightlog.session.manifest import Manifest
from flightlog.store import layout
from flightlog.store.catalogue import list_runs
from flightlog.store.documents import read_document
from flightlog.store.run import find_run
from flightlog.store.runs_folder import place

LOCK_VERSION = 1

_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})\Z")


class Lock(Struct, frozen=True, kw_only=True):
    """What a run was made of; None is unknown."""

    lock_version: int = LOCK_VERSION
    manifest_sha256: str
    python: str
    packages: dict[str, str | None] | None
    git_commit: str | None
    git_dirty: bool | None
    functions: dict[str, LockedFunction]
    """By module and qualified name."""
    images: dict[str, str]
    """Digests by component, of images that are named by digest."""


class Difference(Struct, frozen=True):
    """One thing that differs between two locks."""

    what: str
    """`manifest`, `python`, `package`, `git`, `function` or `image`."""
    name: str
    before: str | None
    after: str | None
    sentence: str


def make_lock(
    manifest: Manifest,
    functions: Iterable[Callable[..., Any]],
    environment: Environment,
    environ: Mapping[str, str],
) -> Lock:
    """The lock of what runs now, with the images that the manifest names with these variables.

    Give the manifest as `for_target` does: a target's overlay may name other images.
    """
    folder = manifest.path.parent
    images = {
        name: component.text("image") for name, component in manifest.tree.entries("components").items()
    }
    digests = {
        name: _DIGEST.search(expand(image, environ).text) for name, image in sorted(images.items()) if image
    }
    locked = dict(lock_function(function, folder) for function in functions)
    return Lock(
        manifest_sha256=manifest.sha256,
        python=environment.python,
        packages=environment.packages,
        git_commit=environment.git_commit,
        git_dirty=environment.git_dirty,
        functions={name: locked[name] for name in sorted(locked)},
        images={name: digest.group(1) for name, digest in digests.items() if digest is not None},
    )


def relock(manifest: Manifest, before: Lock, environment: Environment, environ: Mapping[str, str]) -> Lock:
    """A lock of now to hold against an earlier one: its functions are looked up in their files, not
    imported.
    """
    folder = manifest.path.parent
    functions = {name: relock_function(name, found, folder) for name, found in before.functions.items()}
    return replace(make_lock(manifest, (), environment, environ), functions=functions)


def compare_locks(before: Lock, after: Lock) -> list[Difference]:
    """What differs, in words; nothing where nothing does. What is unknown on one side is not called
    different.
    """
    found = []
    old, new = before.manifest_sha256[:12], after.manifest_sha256[:12]
    if before.manifest_sha256 != after.manifest_sha256:
        found.append(Difference("manifest", "", old, new, f"the manifest changed: {old} then, {new} now"))
    if before.python != after.python:
        sentence = f"Python was {before.python} and is {after.python}"
        found.append(Difference("python", "", before.python, after.python, sentence))
    if before.packages is not None and after.packages is not None:
        found += _packages(before.packages, after.packages)
    found += _git(before, after)
    for name in sorted(before.functions.keys() | after.functions.keys()):
        found += _function(name, before.functions.get(name), after.functions.get(name))
    for name in sorted(before.images.keys() | after.images.keys()):
        old_image, new_image = before.images.get(name), after.images.get(name)
        if old_image != new_image:
            none = "not named by digest"
            sentence = f"the image of component {name} was {old_image or none} and is {new_image or none}"
            found.append(Difference("image", name, old_image, new_image, sentence))
    return found


def read_lock(run: Path) -> Lock | None:
    """The lock of a run; None where it has none that can be read."""
    return read_document(run / layout.LOCK, Lock).value


def find_lock(ref: str | None, runs_dir: Path, project: str) -> tuple[Path, Lock]:
    """A run and its lock: the one named, else the last of the project that has a lock; else `RunNotFound`."""
    if ref is not None:
        path = find_run(ref, runs_dir=runs_dir)
        read = read_document(path / layout.LOCK, Lock)
        if read.value is None:
            raise RunNotFound(f"{path.name} has no lock to check against: {read.problem}")
        return path, read.value
    for entry in list_runs(runs_dir):
        if entry.project == project and (lock := read_lock(entry.path)) is not None:
            return entry.path, lock
    raise RunNotFound(f"no run of {project!r} in {place(runs_dir)} has a lock to check against")


def _packages(before: dict[str, str | None], after: dict[str, str | None]) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if name not in after:
            sentence = f"{name} {old or ''}".rstrip() + " is no longer installed"
        elif name not in before:
            sentence = f"{name} {new or ''}".rstrip() + " was not installed"
        elif old is None or new is None or old == new:
            continue
        else:
            sentence = f"{name} was {old} and is {new}"
        yield Difference("package", name, old, new, sentence)


def _git(before: Lock, after: Lock) -> Iterator[Difference]:
    if None not in (before.git_commit, after.git_commit) and before.git_commit != after.git_commit:
        old, new = str(before.git_commit)[:12], str(after.git_commit)[:12]
        yield Difference("git", "commit", old, new, f"the git commit was {old} and is {new}")
    if None not in (before.git_dirty, after.git_dirty) and before.git_dirty != after.git_dirty:
        now = "and has some now" if after.git_dirty else "and has none now"
        then = "had no uncommitted changes" if after.git_dirty else "had uncommitted changes"
        was, is_ = (("clean", "dirty")[bool(each.git_dirty)] for each in (before, after))
        yield Difference("git", "dirty", was, is_, f"the git checkout {then} {now}")


def _function(name: str, before: LockedFunction | None, after: LockedFunction | None) -> Iterator[Difference]:
    old, new = before.sha256 if before else None, after.sha256 if after else None
    if before is None:
        sentence = f"the function {name} was not part of it"
    elif after is None:
        sentence = f"the function {name} is no longer part of it"
    elif old == new or old is None or (new is None and after.file is None):
        return
    elif new is None:
        sentence = f"the function {name} is no longer in {after.file}"
    else:
        sentence = f"the function {name} changed" + (f" in {after.file}" if after.file else "")
    yield Difference("function", name, old and old[:12], new and new[:12], sentence)


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
