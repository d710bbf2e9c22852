"""Overlays in files of their own, which a manifest does not know of: picked by name, for one session or
plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flightlog.core.errors import ManifestError, UsageError
from flightlog.core.settings import expanded, read_settings
from flightlog.session.manifest import Manifest, with_overlay
from flightlog.session.overlay import laid_over, with_removals
from flightlog.session.schema import OVERLAID
from flightlog.session.validation import Checker, Problem
from flightlog.session.yaml_tree import Node, read_tree


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
    known = whole.tree.get("overlays")
    if known is not None and known.get(wanted) is not None:
        return whole if wanted in whole.overlays else with_overlay(whole, [wanted])
    file = expanded(wanted)
    places = [file] if file.is_absolute() else [Path.cwd() / file, manifest.path.parent / file]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        said = "" if overlay is not None else ", which FLIGHTLOG_OVERLAY names,"
        raise UsageError(f"there is no overlay {wanted!r}{said} in {manifest.name}, and no file of that name")
    try:
        source = found.read_bytes().decode()
    except UnicodeDecodeError:
        raise ManifestError([f"{wanted}: is not UTF-8"]) from None
    except OSError as error:
        raise UsageError(f"cannot read {wanted}: {error.strerror or error}") from error
    return lay_text_over(whole, source, wanted)


def lay_text_over(manifest: Manifest, source: str, name: str) -> Manifest:
    """The manifest with an overlay's text laid over it; what the text makes wrong is one `ManifestError`."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in source.splitlines()):
        raise ManifestError(
            [
                f"{name}: changes nothing; an overlay says what to change, such as `components: {{sim: {{memory: 8G}}}}`"
            ]
        )
    over = read_tree(source, name)
    assert isinstance(over.value, dict)
    strange = [
        f"{name}:{node.line}: {key!r} is no key of an overlay; known are {', '.join(OVERLAID)}"
        for key, node in over.value.items()
        if key not in OVERLAID
    ]
    wrong = strange or [
        problem.sentence(name if problem.overlay else manifest.name)
        for problem in problems_of(manifest, over, name)
    ]
    if wrong:
        raise ManifestError(wrong)
    assert isinstance(manifest.tree.value, dict)
    there = manifest.tree.get("overlays")
    others = there.value if there is not None and isinstance(there.value, dict) else {}
    overlays = Node({**others, name: over}, over.line)
    known = replace(
        manifest, tree=replace(manifest.tree, value={**manifest.tree.value, "overlays": overlays})
    )
    return with_overlay(known, [name])


def problems_of(manifest: Manifest, over: Node, name: str) -> list[Problem]:
    """What is wrong with the manifest once this is laid over it, and was not before."""
    before = Checker(manifest.tree, None)
    before.contents()
    laid = laid_over(manifest.tree, over, name)
    assert laid is not None
    after = Checker(with_removals(laid, over, name), None)
    after.contents()
    known = {(problem.line, problem.path, problem.text) for problem in before.problems}
    return [one for one in after.problems if (one.line, one.path, one.text) not in known]
