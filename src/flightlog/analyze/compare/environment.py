"""What differs in the environment of the runs: code, packages, Python, machine, manifest, settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flightlog.analyze.compare.results import EnvironmentChange
from flightlog.core.units import format_bytes
from flightlog.store import layout
from flightlog.store.documents import read_document

if TYPE_CHECKING:
    from flightlog.store.run import Run

LOCK = "manifest.lock"
_NONE = "none"
_MACHINE = {
    "cpu_model": "CPU",
    "cpus_logical": "CPUs",
    "cpus_usable": "usable CPUs",
    "cgroup_cpus": "CPU quota",
    "memory_bytes": "memory",
    "cgroup_memory_bytes": "memory limit",
    "platform": "system",
    "kernel": "kernel",
    "machine": "architecture",
}
_SHOWN = 4
"""How many values of one side are named; a group of runs may have one each."""

Facts = dict[tuple[str, str], str]
"""What a run was made of, by kind and name. What is unknown is not there."""


def compare_environments(before: Sequence[Run], after: Sequence[Run]) -> list[EnvironmentChange]:
    """What differs, in the order code, packages, Python, machine, settings; what one side does not know is
    left out.

    In a group, a difference is a set of values that the other side does not have.
    """
    old, new = [environment_of(run) for run in before], [environment_of(run) for run in after]
    keys: dict[tuple[str, str], None] = {}
    for facts in (*old, *new):
        keys |= dict.fromkeys(key for key in facts if key[0] in _ORDER)
    found = []
    for what, name in keys:
        sides = [[facts.get((what, name), _absent(what, facts)) for facts in side] for side in (old, new)]
        known = [sorted({value for value in side if value is not None}) for side in sides]
        if known[0] and known[1] and known[0] != known[1]:
            was, now = (_shown(values) for values in known)
            found.append(EnvironmentChange(what=what, name=name, before=was, after=now))
    rank = {kind: number for number, kind in enumerate(_ORDER)}
    return sorted(
        found,
        key=lambda change: (rank[change.what], change.what, change.name if change.what == "package" else ""),
    )


_ORDER = (
    "git",
    "function",
    "manifest",
    "image",
    "package",
    "python",
    "flightlog",
    "host",
    "machine",
    "target",
    "provider",
    "command",
    "variable",
    "tag",
)
_LISTS = {"package", "variable", "tag", "function", "image"}
"""Kinds that are lists: where a run has the list, what is not on it was not there."""


def _absent(what: str, facts: Facts) -> str | None:
    return _NONE if what in _LISTS and ("known", what) in facts else None


def _shown(values: list[str]) -> str | None:
    if values == [_NONE]:
        return None
    more = f", … ({len(values)} values)" if len(values) > _SHOWN else ""
    return ", ".join(values[:_SHOWN]) + more


def environment_of(run: Run) -> Facts:
    """What one run was made of, by kind and name; what is unknown is not there."""
    return {key: value for key, value in _pairs(run) if value is not None}


def _pairs(run: Run) -> Iterator[tuple[tuple[str, str], str | None]]:
    info = run.info
    around = read_document(run.path / layout.ENVIRONMENT, dict[str, Any]).value or {}
    lock = read_document(run.path / LOCK, dict[str, Any]).value or {}
    commit = info.git_commit or around.get("git_commit")
    dirty = around.get("git_dirty") if info.git_dirty is None else info.git_dirty
    yield ("git", "commit"), _text(commit)[:12] if commit else None
    yield ("git", "branch"), _text(around.get("git_branch")) or None
    yield ("git", "uncommitted changes"), None if dirty is None else "yes" if dirty else "no"
    manifest = info.manifest_hash or lock.get("manifest_sha256")
    yield ("manifest", ""), _text(manifest)[:12] if manifest else None
    yield from _list("function", lock.get("functions"), lambda value: _text(_field(value, "sha256"))[:12])
    yield from _list("image", lock.get("images"), _text)
    yield from _list(
        "package", around.get("packages") or lock.get("packages"), lambda value: _text(value) or "installed"
    )
    yield ("python", ""), _text(info.python or around.get("python")) or None
    yield ("flightlog", ""), _text(info.flightlog_version) or None
    yield ("host", ""), info.host or None
    for field, name in _MACHINE.items():
        value = around.get(field)
        if field.startswith("cgroup") and around and value is None:
            yield ("machine", name), "no limit"
        elif value is not None:
            yield ("machine", name), format_bytes(value) if field.endswith("_bytes") else _text(value)
    yield ("target", ""), info.target
    yield ("provider", ""), info.provider
    yield ("command", ""), " ".join(info.command) or None
    yield from _list("variable", around.get("variables"), _text)
    yield from _list("tag", info.tags, _text)


def _list(what: str, values: Any, shown: Any) -> Iterator[tuple[tuple[str, str], str | None]]:
    if isinstance(values, dict):
        yield ("known", what), "yes"
        for name, value in values.items():
            yield (what, str(name)), shown(value) or None


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    import msgspec

    try:
        return msgspec.json.encode(value).decode()
    except (RecursionError, UnicodeEncodeError):
        return "…"
