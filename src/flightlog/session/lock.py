"""The lock: what a run was made of, and what differs from it now."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from flightlog.core.errors import RunNotFound
from flightlog.record.environment import Environment
from flightlog.session.contents import Contents
from flightlog.session.expansion import expand
from flightlog.session.functions import LockedFunction, lock_function, relock_function
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


class Difference(Struct, frozen=True, kw_only=True):
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
    *,
    contents: Contents | None = None,
    environ: Mapping[str, str] | None = None,
) -> Lock:
    """The lock of what runs now.

    The images are those of `contents`, where a session has resolved it. Else they are read off the manifest
    with the variables in `environ`; give it as `for_target` does, for a target's overlay may name other
    images.
    """
    environ = os.environ if environ is None else environ
    folder = manifest.path.parent
    locked = dict(lock_function(function, folder) for function in functions)
    return Lock(
        manifest_sha256=manifest.sha256,
        python=environment.python,
        packages=environment.packages,
        git_commit=environment.git_commit,
        git_dirty=environment.git_dirty,
        functions={name: locked[name] for name in sorted(locked)},
        images=_digests(_images(manifest, environ) if contents is None else _resolved_images(contents)),
    )


def relock(
    manifest: Manifest,
    before: Lock,
    environment: Environment,
    *,
    environ: Mapping[str, str] | None = None,
) -> Lock:
    """A lock of now to hold against an earlier one: its functions are looked up in their files, not
    imported.
    """
    environ = os.environ if environ is None else environ
    folder = manifest.path.parent
    fresh = make_lock(manifest, (), environment, environ=environ)
    functions = {name: relock_function(name, found, folder) for name, found in before.functions.items()}
    return replace(fresh, functions=functions)


def compare_locks(before: Lock, after: Lock) -> list[Difference]:
    """What differs, in words; nothing where nothing does. What is unknown on one side is not called
    different.
    """
    found: list[Difference] = []
    if before.manifest_sha256 != after.manifest_sha256:
        old, new = before.manifest_sha256[:12], after.manifest_sha256[:12]
        found.append(_difference("manifest", "", old, new, f"the manifest changed: {old} then, {new} now"))
    if before.python != after.python:
        found.append(
            _difference(
                "python", "", before.python, after.python, f"Python was {before.python} and is {after.python}"
            )
        )
    found += _packages(before.packages, after.packages) + _git(before, after)
    for name in sorted(before.functions.keys() | after.functions.keys()):
        found += _function(name, before.functions.get(name), after.functions.get(name))
    for name in sorted(before.images.keys() | after.images.keys()):
        old_image, new_image = before.images.get(name), after.images.get(name)
        if old_image != new_image:
            none = "not named by digest"
            sentence = f"the image of component {name} was {old_image or none} and is {new_image or none}"
            found.append(_difference("image", name, old_image, new_image, sentence))
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


def _difference(what: str, name: str, before: str | None, after: str | None, sentence: str) -> Difference:
    return Difference(what=what, name=name, before=before, after=after, sentence=sentence)


def _packages(before: dict[str, str | None] | None, after: dict[str, str | None] | None) -> list[Difference]:
    if before is None or after is None:
        return []
    found: list[Difference] = []
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
        found.append(_difference("package", name, old, new, sentence))
    return found


def _git(before: Lock, after: Lock) -> list[Difference]:
    found: list[Difference] = []
    if None not in (before.git_commit, after.git_commit) and before.git_commit != after.git_commit:
        old, new = str(before.git_commit)[:12], str(after.git_commit)[:12]
        found.append(_difference("git", "commit", old, new, f"the git commit was {old} and is {new}"))
    if None not in (before.git_dirty, after.git_dirty) and before.git_dirty != after.git_dirty:
        now = "and has some now" if after.git_dirty else "and has none now"
        then = "had no uncommitted changes" if after.git_dirty else "had uncommitted changes"
        words = ("dirty", "clean")
        found.append(
            _difference(
                "git",
                "dirty",
                words[not before.git_dirty],
                words[not after.git_dirty],
                f"the git checkout {then} {now}",
            )
        )
    return found


def _function(name: str, before: LockedFunction | None, after: LockedFunction | None) -> list[Difference]:
    old, new = before.sha256 if before else None, after.sha256 if after else None
    if before is None:
        sentence = f"the function {name} was not part of it"
    elif after is None:
        sentence = f"the function {name} is no longer part of it"
    elif old == new or old is None or (new is None and after.file is None):
        return []
    elif new is None:
        sentence = f"the function {name} is no longer in {after.file}"
    else:
        sentence = f"the function {name} changed" + (f" in {after.file}" if after.file else "")
    return [_difference("function", name, old and old[:12], new and new[:12], sentence)]


def _resolved_images(contents: Contents) -> dict[str, str]:
    return {name: each.image for name, each in contents.components.items() if each.image}


def _images(manifest: Manifest, environ: Mapping[str, str]) -> dict[str, str]:
    table = manifest.tree.get("components")
    names = table.value if table is not None and isinstance(table.value, dict) else {}
    nodes = {name: component.get("image") for name, component in names.items()}
    return {
        name: expand(node.value, environ).text
        for name, node in nodes.items()
        if node is not None and isinstance(node.value, str)
    }


def _digests(images: Mapping[str, str]) -> dict[str, str]:
    found = {name: _DIGEST.search(images[name]) for name in sorted(images)}
    return {name: digest.group(1) for name, digest in found.items() if digest is not None}
