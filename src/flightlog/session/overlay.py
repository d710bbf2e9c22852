"""Overlays: laid over a manifest by name or from a file, for one session or plan, and written from advice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from flightlog.core.errors import ManifestError, UsageError
from flightlog.core.settings import expanded, read_settings
from flightlog.session.manifest import Manifest, overlay_problems, read_source, with_overlay
from flightlog.session.validation import Problem, problems_in
from flightlog.session.yaml_tree import Node, read_tree
from flightlog.store.documents import replace_bytes

if TYPE_CHECKING:
    from flightlog.analyze.advice.advise import Advised


SUFFIX = ".advised.yaml"
_MARK = "# Written by `flightlog advise --apply`, which may replace it; content "
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_.-]+)*")
_KINDS = ("components", "tasks", "targets")


def pick_overlay(
    manifest: Manifest,
    target: str,
    overlay: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Manifest:
    """The manifest with what was picked laid over it and over the target's own overlay; as it is where
    nothing was.

    `overlay` is the name of one of the manifest's overlays, or a file: from here, or else from the manifest's
    folder. Without it, `FLIGHTLOG_OVERLAY` says. One that is not there is a `UsageError`, one that makes no
    sense a `ManifestError`.
    """
    environ = os.environ if environ is None else environ
    wanted = os.fspath(overlay) if overlay is not None else read_settings(environ).overlay
    if wanted is None:
        return manifest
    whole = manifest.for_target(target, environ)
    if wanted in whole.tree.entries("overlays"):
        return whole if wanted in whole.overlays else with_overlay(whole, [wanted])
    file = expanded(wanted)
    places = [file] if file.is_absolute() else [Path.cwd() / file, manifest.path.parent / file]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        said = "" if overlay is not None else ", which FLIGHTLOG_OVERLAY names,"
        raise UsageError(f"there is no overlay {wanted!r}{said} in {manifest.name}, and no file of that name")
    return lay_text_over(whole, read_source(found, wanted), wanted)


def lay_text_over(manifest: Manifest, source: str, name: str) -> Manifest:
    """The manifest with an overlay's text laid over it; what the text makes wrong is one `ManifestError`."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in source.splitlines()):
        hint = "an overlay says what to change, such as `components: {sim: {memory: 8G}}`"
        raise ManifestError([f"{name}: changes nothing; {hint}"])
    over = read_tree(source, name)
    if problems := problems_of(manifest, over, name):
        raise ManifestError(
            [problem.sentence(name if problem.overlay else manifest.name) for problem in problems]
        )
    overlays = Node({**manifest.tree.entries("overlays"), name: over}, over.line)
    return with_overlay(replace(manifest, tree=manifest.tree.with_entry("overlays", overlays)), [name])


def problems_of(manifest: Manifest, over: Node, name: str) -> list[Problem]:
    """What is wrong with the manifest once this is laid over it, and was not before."""
    return overlay_problems(manifest.tree, over, name, problems_in(manifest.tree, None))


class WrittenOverlay(Struct, frozen=True, kw_only=True):
    """What became of the advice."""

    path: Path | None
    """The file, named from the working directory where it is in there; None where there was nothing to
    set."""
    changes: dict[str, str]
    """What it sets."""
    commented: dict[str, str]
    """What stands in it as a comment, or in no file at all, by path: what has to hold before it is set."""
    left_out: list[str]
    """Sentences on what could not be set."""


def write_advised(manifest: Manifest, advised: Advised) -> WrittenOverlay:
    """Write what is advised into `<manifest>.advised.yaml`, as far as the manifest has such things and it is
    news.

    What may only be set on a condition that no record tells of (a cache, a retry) is a comment in it. A file
    of that name that was not written so, or was changed since, is left alone, with a `UsageError`. The
    manifest itself is never touched.
    """
    changes: dict[str, str] = {}
    left_out: list[str] = []
    for path, value in advised.changes.items():
        problem = _problem(manifest, path, value)
        if problem is not None:
            left_out.append(f"{path} was not set to {value}: {problem}")
        elif _there(manifest, path) != value:
            changes[path] = value
    commented = {path: why for path, why in advised.conditions.items() if path in changes}
    sure = {path: value for path, value in changes.items() if path not in commented}
    if not sure:
        return WrittenOverlay(path=None, changes={}, commented=commented, left_out=left_out)
    file = manifest.path.with_suffix(SUFFIX)
    _refuse_others(file)
    try:
        replace_bytes(file, overlay_text(manifest, advised, changes).encode())
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from error
    return WrittenOverlay(path=_near(file), changes=sure, commented=commented, left_out=left_out)


def overlay_text(manifest: Manifest, advised: Advised, changes: Mapping[str, str]) -> str:
    """The file's text: each value with what stood there before, and all reasons at the top.

    What is set on a condition is a comment; without its `# ` the line is right where it stands.
    """
    reasons = [one.sentence for one in advised.advice if any(path in changes for path in one.changes)]
    enough = f"so that {advised.confidence * 100:g} % of later attempts have enough."
    origin = f"From {advised.attempts:,} attempts in {advised.runs:,} runs of {advised.project}, {enough}"
    lines = [f"# {line}" for line in (origin, *reasons)]
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        *way, last = _way(manifest, path)
        inside = tree
        for part in way:
            inside = inside.setdefault(part, {})
        before = _there(manifest, path)
        said = [f"was {' '.join(before.split())}"] if before is not None else []
        said += [f"only if {advised.conditions[path]}"] if path in advised.conditions else []
        text = _word(value) + (f"  # {', '.join(said)}" if said else "")
        inside[last] = text, path in advised.conditions
    body = "".join(f"{' '.join(line.split())}\n" for line in lines) + "".join(_yaml(tree))
    return f"{_MARK}{_digest(body)}\n{body}"


def _yaml(tree: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The lines of nested mappings; each value is a text, and whether it is written as a comment."""
    for key, value in tree.items():
        mark = "# " if _is_unsure(value) else ""
        if isinstance(value, dict):
            yield f"{mark}{indent}{_word(key)}:\n"
            yield from _yaml(value, indent + "  ")
        else:
            yield f"{mark}{indent}{_word(key)}: {value[0]}\n"


def _is_unsure(value: Any) -> bool:
    """Whether nothing of it is to be set: a mapping of comments alone would be no mapping."""
    return all(map(_is_unsure, value.values())) if isinstance(value, dict) else bool(value[1])


def _way(manifest: Manifest, path: str) -> tuple[str, ...]:
    """The keys of a path: names may have dots in them, and the manifest's own names say which do."""
    kind, _, rest = path.partition(".")
    names = manifest.tree.entries(kind)
    known = max((name for name in names if rest.startswith(f"{name}.")), key=len, default=None)
    if known is not None:
        return kind, known, *rest[len(known) + 1 :].split(".")
    name, _, key = rest.rpartition(".")
    return kind, name, key


def _there(manifest: Manifest, path: str) -> str | None:
    node = manifest.tree.get(*_way(manifest, path))
    return None if node is None or node.value is None else str(node)


def _problem(manifest: Manifest, path: str, value: str) -> str | None:
    """Why a value cannot be set; None where it can."""
    kind, name, *keys = _way(manifest, path)
    if kind not in _KINDS or not name or not all(keys):
        return "an overlay sets what a component, a task or a target has"
    if manifest.tree.get(kind, name) is None and kind != "tasks":
        return f"{manifest.name} has no {kind.removesuffix('s')} {name!r}"
    over = Node(value, 1)
    for key in (*reversed(keys), name, kind):
        over = Node({key: over}, 1)
    found = problems_of(manifest, over, "advice")
    return found[0].text if found else None


def _word(text: str) -> str:
    """A text as YAML: plain where that is safe."""
    return text if _PLAIN.fullmatch(text) else msgspec.json.encode(text).decode()


def _digest(body: str) -> str:
    return sha256(body.encode()).hexdigest()[:16]


def _refuse_others(file: Path) -> None:
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot look at {file}: {error.strerror or error}") from error
    first, _, body = text.partition("\n")
    if not first.startswith(_MARK):
        raise UsageError(
            f"{file} was not written by `flightlog advise --apply`, and was left alone; move it away"
        )
    if first.removeprefix(_MARK).strip() != _digest(body):
        raise UsageError(
            f"{file} was changed since it was written, and was left alone; move it away to get a new one"
        )


def _near(file: Path) -> Path:
    here = Path.cwd()
    return file.relative_to(here) if file.is_relative_to(here) else file
