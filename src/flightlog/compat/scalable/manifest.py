"""`scalable.yaml` and the `SCALABLE_*` variables, translated to Flightlog's manifest and settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded
from flightlog.session.manifest import Manifest, parse_manifest, read_source
from flightlog.session.yaml_tree import Node

UNSUPPORTED_PROVIDERS = ("kubernetes", "aws", "gcp")
"""Scalable's providers without an engine here."""

_WITHOUT_MEANING = {
    "local": {
        "containers": "tasks run without containers here, as they do in Scalable's local provider",
        "dashboard_address": "local workers are no Dask cluster, and have no dashboard",
    },
    "slurm": {
        "comm_port": "workers need no communicator",
        "container_runtime": "a component's `runtime` says what runs its image",
        "suppress_logs": "the jobs' output always goes to a folder",
    },
}
_RENAMED = {"slurm": {"logs_location": "log_directory"}}


DEFAULT_RUNS_DIR = ".scalable/runs"
MANIFEST, MANIFEST_VARIABLE = "scalable.yaml", "SCALABLE_MANIFEST"
AUTO = "auto"
"""The target that leaves the choice to the session."""
FLIGHTLOG_VARIABLES = {
    f"SCALABLE_{name}": f"FLIGHTLOG_{name}"
    for name in ("RUNS_DIR", "TELEMETRY", "TELEMETRY_PARQUET", "RUNS_DIR_REMOTE", "CACHE_DIR", "TARGET")
}
_lock = threading.Lock()
_set_by_sessions: dict[str, tuple[str, int]] = {}
"""Variables that open sessions have set: the value, and the number of sessions."""


@dataclass(frozen=True)
class IgnoredOption:
    """An option of a manifest that is ignored here, and why."""

    path: str
    line: int
    why: str


@dataclass
class Translation:
    """Translates the tree of a Scalable manifest into Flightlog's form, and lists what it ignores.

    Local tasks run in threads unless `processes` says otherwise; `outputs` become a list of paths. Ignored
    are `cache: true`, options without a meaning here, and targets whose provider has no engine here. Other
    unknown options are left for the manifest's checks.
    """

    ignored: list[IgnoredOption] = field(default_factory=list)
    unsupported: dict[str, str] = field(default_factory=dict)
    """Ignored targets, and their providers."""
    here: bool = True
    """Whether the manifest has another target."""

    def __call__(self, tree: Node) -> Node:
        """The tree in Flightlog's form."""
        providers = {name: each.text("provider") or "" for name, each in tree.entries("targets").items()}
        self.unsupported = {
            name: provider for name, provider in providers.items() if provider in UNSUPPORTED_PROVIDERS
        }
        self.here = len(providers) > len(self.unsupported)
        for name, provider in self.unsupported.items():
            line = tree.entries("targets")[name].line
            self.ignored.append(IgnoredOption(f"targets.{name}", line, f"there is no engine for {provider}"))
        tree = self._part(tree, providers, "", base=True)

        def overlay(name: str, over: Node) -> Node:
            return self._part(over, providers, f"overlays.{name}.", base=False)

        return _each(tree, "overlays", overlay)

    def _part(self, part: Node, providers: Mapping[str, str], path: str, *, base: bool) -> Node:
        """Translate a manifest or an overlay; `providers` are those of the manifest's targets."""

        def target(name: str, node: Node) -> Node | None:
            if name in self.unsupported:
                return None
            return self._target(node, providers.get(name, ""), f"{path}targets.{name}", base=base)

        part = _each(part, "targets", target)
        return _each(part, "tasks", lambda name, node: self._task(node, f"{path}tasks.{name}"))

    def _target(self, target: Node, provider: str, path: str, *, base: bool) -> Node:
        if not isinstance(target.value, dict):
            return target
        provider = target.text("provider") or provider
        nothing, renamed = _WITHOUT_MEANING.get(provider, {}), _RENAMED.get(provider, {})
        made: dict[str, Node] = {}
        for key, node in target.value.items():
            if key in nothing:
                if (key, node.value) != ("containers", "none"):
                    self.ignored.append(IgnoredOption(f"{path}.{key}", node.line, nothing[key]))
            else:
                made[renamed.get(key, key)] = node
        if provider == "slurm" and (name := target.text("name")) is not None:
            line = made.pop("name").line
            more = made.get("job_extra_directives", Node((), line))
            there = more.value if isinstance(more.value, tuple) else (more,)
            job_name = Node(f"--job-name={name}", line, quoted=True)
            made["job_extra_directives"] = replace(more, value=(*there, job_name))
        if provider == "local" and base:
            made.setdefault("processes", Node("false", target.line))
        return replace(target, value=made)

    def _task(self, task: Node, path: str) -> Node:
        """A task with its output paths as a list, and without options that have no effect in Scalable
        either.
        """
        entries, outputs = dict(task.entries()), task.entries("outputs")
        cached = (task.text("cache") or "").lower()
        if cached == "true":
            why = "it has no effect in Scalable; a function that is @cacheable keeps its results"
            self.ignored.append(IgnoredOption(f"{path}.cache", entries["cache"].line, why))
        if cached in ("true", "false"):
            del entries["cache"]
        if isinstance(getattr(task.get("outputs"), "value", None), dict):
            entries["outputs"] = replace(entries["outputs"], value=tuple(outputs.values()))
        return replace(task, value=entries) if isinstance(task.value, dict) else task


def load_scalable(
    path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Manifest, Translation]:
    """The manifest at a path or in a folder, by default that of `SCALABLE_MANIFEST` or `./scalable.yaml`.

    Raises one `ManifestError` with all its problems, and `UsageError` where there is none.
    """
    environ = os.environ if environ is None else environ
    given = os.fspath(path) if path is not None else environ.get(MANIFEST_VARIABLE, "").strip() or MANIFEST
    file = expanded(given)
    if file.is_dir():
        file, given = file / MANIFEST, os.fspath(Path(given) / MANIFEST)
    if not file.exists():
        raise UsageError(f"there is no file {given}; name the manifest, or set {MANIFEST_VARIABLE}")
    translation = Translation()
    return parse_manifest(read_source(file, given), file.absolute(), given, translation), translation


def _each(tree: Node, key: str, translate: Callable[[str, Node], Node | None]) -> Node:
    """The tree with each entry of a table translated; those that come to None are left out."""
    table = tree.get(key)
    if table is None or not isinstance(table.value, dict):
        return tree
    made = {name: translate(name, node) for name, node in table.value.items()}
    kept = {name: node for name, node in made.items() if node is not None}
    return tree.with_entry(key, replace(table, value=kept))


def translated_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The `FLIGHTLOG_*` variables that follow from `SCALABLE_*` ones, and the default folder of runs.

    A `FLIGHTLOG_*` variable that is set wins. Empty ones count as unset.
    """
    environ = os.environ if environ is None else environ
    found = {
        ours: environ[theirs]
        for theirs, ours in FLIGHTLOG_VARIABLES.items()
        if environ.get(theirs, "").strip() and not _is_set(environ, ours)
    }
    if found.get("FLIGHTLOG_TARGET") == AUTO:
        del found["FLIGHTLOG_TARGET"]
    if not _is_set(environ, "FLIGHTLOG_RUNS_DIR"):
        found.setdefault("FLIGHTLOG_RUNS_DIR", DEFAULT_RUNS_DIR)
    return found


class EnvironmentVariables:
    """Sets the translated variables from `put` to `take_back`, for this process and its children.
    Thread-safe.
    """

    def __init__(self, environ: MutableMapping[str, str] | None = None) -> None:
        self._environ: MutableMapping[str, str] = os.environ if environ is None else environ
        self._mine: list[str] = []

    def put(self) -> None:
        """Set the missing variables."""
        with _lock:
            for name, value in translated_variables(self._environ).items():
                there, count = _set_by_sessions.get(name, (value, 0))
                _set_by_sessions[name] = (there, count + 1)
                self._environ[name] = there
                self._mine.append(name)

    def take_back(self) -> None:
        """Unset variables that no other session needs, unless they were changed since."""
        with _lock:
            for name in self._mine:
                value, count = _set_by_sessions.get(name, ("", 0))
                if count > 1:
                    _set_by_sessions[name] = (value, count - 1)
                    continue
                _set_by_sessions.pop(name, None)
                if self._environ.get(name) == value:
                    del self._environ[name]
            self._mine.clear()


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether a variable is set, other than by an open session."""
    value = environ.get(name, "")
    return bool(value.strip()) and _set_by_sessions.get(name, ("", 0))[0] != value
