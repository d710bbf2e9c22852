"""Where each value of a manifest comes from: its line, its overlay, its variables."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from flightlog.session.expansion import variables
from flightlog.session.manifest import Manifest
from flightlog.session.overlay import Change, shown
from flightlog.session.plan import storable


class Origin(Struct, frozen=True, kw_only=True):
    """One value, as written: variables unexpanded, written-out secrets redacted."""

    path: str
    text: str
    line: int
    """0 where nobody wrote it."""
    overlay: str | None
    is_set: dict[str, bool]
    """Of each of its variables, whether it is set to anything."""


class Explanation(Struct, frozen=True, kw_only=True):
    """What overlays changed, and where every value of a target comes from."""

    name: str
    changes: tuple[Change, ...]
    origins: tuple[Origin, ...]


def explain(manifest: Manifest, target: str, environ: Mapping[str, str]) -> Explanation:
    """The origins of all that counts for one target, in the manifest's order; `overlays` itself is left
    out.
    """
    chosen = manifest.for_target(target, environ)
    origins = [
        Origin(
            path=".".join(path),
            text=storable(shown(node), path[-1]),
            line=node.line,
            overlay=node.overlay,
            is_set={name: bool(environ.get(name)) for name in variables(shown(node))},
        )
        for path, node in chosen.tree.leaves()
        if path and path[0] != "overlays" and node.value is not None
    ]
    changes = tuple(
        Change(
            path=change.path,
            overlay=change.overlay,
            before=_safe(change.before, change.path),
            before_line=change.before_line,
            after=_safe(change.after, change.path),
            after_line=change.after_line,
        )
        for change in chosen.changes
    )
    return Explanation(name=manifest.name, changes=changes, origins=tuple(origins))


def _safe(text: str | None, path: str) -> str | None:
    found: str | None = None if text is None else storable(text, path.rpartition(".")[2])
    return found
