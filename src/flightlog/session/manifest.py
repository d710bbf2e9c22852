"""The manifest: found, read, and kept as it was written; what it says is worked out where it is used.

Rates may be in a file of their own, to say afterwards what a run cost: a `cost` as in a manifest, or a
manifest itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flightlog.core.errors import ManifestError, UsageError
from flightlog.core.settings import expanded, read_settings
from flightlog.events import CostRates
from flightlog.session.charges import charges, charges_of
from flightlog.session.expansion import expand
from flightlog.session.overlay import OverlayChange, changes, laid_over, shown, with_removals
from flightlog.session.schema import OVERLAID, Contents
from flightlog.session.validation import Checker, Problem, hint_for, nearest
from flightlog.session.yaml_tree import Node, read_tree

MANIFEST = "flightlog.yaml"
ASSUMED = 0
"""The line of what nobody wrote."""


@dataclass(frozen=True)
class Manifest:
    """A manifest as written, variables unexpanded, with the overlays that were laid over it so far."""

    path: Path
    """Absolute."""
    name: str
    """As messages call it: the path that was given, or the way from the working directory."""
    source: str
    """The file's text, never expanded: this is what a run keeps."""
    tree: Node
    overlays: tuple[str, ...] = ()
    """Those laid over, in order."""
    changes: tuple[OverlayChange, ...] = ()
    """What they changed."""

    @property
    def sha256(self) -> str:
        """Of the text as UTF-8, in hex."""
        from hashlib import sha256

        return sha256(self.source.encode()).hexdigest()

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the targets, in order; `local` alone where the manifest has none."""
        return _keys(self.tree.get("targets"))

    def provider(self, target: str, environ: Mapping[str, str]) -> str | None:
        """The provider of a target; None where that is not said or not known."""
        node = self.tree.get("targets", target, "provider")
        return expand(node.value, environ).text if node is not None and isinstance(node.value, str) else None

    def for_target(self, target: str, environ: Mapping[str, str]) -> Manifest:
        """The manifest with the target's own overlay laid over it, and without the other targets.

        Doing it twice changes nothing more. A target that is not there is a `UsageError`.
        """
        node = self.tree.get("targets", target)
        if node is None:
            raise UsageError(f"there is no target {target!r} in {self.name}; {known_targets(self)}")
        overlay = node.get("overlay")
        wanted = expand(overlay.value, environ).text if overlay and isinstance(overlay.value, str) else ""
        whole = self
        if wanted and wanted in _keys(self.tree.get("overlays")) and wanted not in self.overlays:
            whole = with_overlay(self, [wanted])
        chosen = whole.tree.get("targets", target)
        assert isinstance(whole.tree.value, dict)
        if chosen is None:
            raise UsageError(
                f"the overlay {wanted!r} of {self.name} removes the target {target!r} it belongs to"
            )
        targets = replace(whole.tree.value["targets"], value={target: chosen})
        return replace(whole, tree=replace(whole.tree, value={**whole.tree.value, "targets": targets}))

    def resolved(
        self, environ: Mapping[str, str], target: str | None = None, *, raw: bool = False
    ) -> Contents:
        """What the manifest says with these variables; of one target alone, with its overlay, where one is
        named.

        Everything wrong, unset variables included, is one `ManifestError`. The result may hold secrets that
        came from variables and is not to be stored; with `raw` free texts keep their variables, set or not.
        """
        manifest = self if target is None else self.for_target(target, environ)
        checker = Checker(manifest.tree, environ, raw=raw, folder=self.path.parent)
        contents = checker.contents()
        if checker.problems:
            raise ManifestError([problem.sentence(self.name) for problem in checker.problems])
        return contents

    def problems(self, environ: Mapping[str, str], target: str) -> list[Problem]:
        """What is wrong with one target with these variables; unset ones are marked as such."""
        checker = Checker(self.for_target(target, environ).tree, environ, folder=self.path.parent)
        checker.contents()
        return checker.problems


def load_manifest(path: Path | str | None = None, *, cwd: Path | None = None) -> Manifest:
    """The manifest at a path, in a folder, or, without a path, in the working directory or nearest above it.

    The search ends at the top of the git checkout. Everything that is wrong whatever the variables hold is
    one `ManifestError`; no manifest at all is a `UsageError` that says where was looked.
    """
    here = (cwd or Path.cwd()).absolute()
    file, name = _find(here) if path is None else _named(here / expanded(path), str(path))
    try:
        source = file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ManifestError(
            [f"{name}: is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"]
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error
    return parse_manifest(source, file, name)


def parse_manifest(
    source: str, path: Path, name: str | None = None, translate: Callable[[Node], Node] | None = None
) -> Manifest:
    """The manifest of a text; `path` is where it stands or would stand. Raises as `load_manifest`.

    `translate` makes a tree of this form of one that another tool's manifest has; the text stays as it is.
    """
    name = name or path.name
    tree = read_tree(source, name)
    tree = _with_target(tree if translate is None else translate(tree))
    manifest = Manifest(path.absolute(), name, source, tree)
    problems = _check_all(manifest)
    if problems:
        raise ManifestError(
            [problem.sentence(name) for problem in sorted(problems, key=lambda each: each.line)]
        )
    return manifest


def with_overlay(manifest: Manifest, names: Iterable[str]) -> Manifest:
    """The manifest with these overlays laid over it, one after the other; an unknown one is a
    `UsageError`.
    """
    for name in names:
        over = manifest.tree.get("overlays", name)
        if over is None or not isinstance(over.value, dict):
            hint = hint_for(name, _keys(manifest.tree.get("overlays")), "it has no overlays")
            raise UsageError(f"there is no overlay {name!r} in {manifest.name}; {hint}")
        made = changes(manifest.tree, over, name)
        laid = laid_over(manifest.tree, over, name)
        assert laid is not None
        manifest = replace(
            manifest, tree=laid, overlays=(*manifest.overlays, name), changes=(*manifest.changes, *made)
        )
    return manifest


def known_targets(manifest: Manifest) -> str:
    """The targets there are, in words."""
    return f"the targets are {', '.join(manifest.targets)}"


def _check_all(manifest: Manifest) -> list[Problem]:
    """Problems of the manifest by itself, then those that each overlay brings."""
    checker = Checker(manifest.tree, None)
    checker.contents()
    problems = checker.problems
    overlays = manifest.tree.get("overlays")
    if overlays is None or overlays.value is None:
        return problems
    if not isinstance(overlays.value, dict):
        return [*problems, _wrong(overlays, "overlays", "names")]
    for name, over in overlays.value.items():
        path = f"overlays.{name}"
        if over.value is None:
            continue
        if not isinstance(over.value, dict):
            problems.append(_wrong(over, path, "keys"))
            continue
        for key, node in over.value.items():
            if key not in OVERLAID:
                text = f"{key!r} is no key of an overlay; {hint_for(key, OVERLAID)}"
                problems.append(Problem(line=node.line, path=f"{path}.{key}", text=text))
        known = {key: node for key, node in over.value.items() if key in OVERLAID}
        part = replace(over, value=known)
        laid = laid_over(manifest.tree, part, name)
        assert laid is not None
        checker = Checker(with_removals(laid, part, name), None)
        checker.contents()
        said = {(problem.line, problem.path) for problem in problems}
        for problem in checker.problems:
            if (problem.line, problem.path) not in said:
                text = problem.text if problem.overlay else f"{problem.text} (with overlay {name!r})"
                problems.append(Problem(line=problem.line, path=problem.path, text=text, overlay=name))
    return problems


def _wrong(node: Node, path: str, of: str) -> Problem:
    return Problem(line=node.line, path=path, text=f"{shown(node)!r} is no mapping of {of} to values")


def _with_target(tree: Node) -> Node:
    """The tree with a target: where none is written, this machine is it."""
    found = tree.get("targets")
    if not isinstance(tree.value, dict) or (found is not None and found.value not in (None, {})):
        return tree
    local = Node({"provider": Node("local", ASSUMED)}, ASSUMED)
    return replace(tree, value={**tree.value, "targets": Node({"local": local}, ASSUMED)})


def _keys(node: Node | None) -> tuple[str, ...]:
    return tuple(node.value) if node is not None and isinstance(node.value, dict) else ()


def _named(path: Path, given: str) -> tuple[Path, str]:
    if path.is_dir():
        path, given = path / MANIFEST, str(Path(given) / MANIFEST)
    if not path.is_file():
        raise UsageError(f"there is no file {given}")
    return path, given


def _find(here: Path) -> tuple[Path, str]:
    looked: Sequence[Path] = []
    for folder in (here, *here.parents):
        looked = [*looked, folder]
        if (folder / MANIFEST).is_file():
            return folder / MANIFEST, os.path.relpath(folder / MANIFEST, here)
        if (folder / ".git").exists():
            break
    other = next(
        (folder / name for folder in looked for name in ("flightlog.yml",) if (folder / name).is_file()), None
    )
    above = f" or above it, up to {looked[-1]}" if len(looked) > 1 else ""
    hint = f"name {other}, which is there" if other else "write one, or name it"
    raise UsageError(f"there is no {MANIFEST} in {here}{above}; {hint}")


LOCAL = "local"


def pick_target(
    manifest: Manifest,
    argument: str | None = None,
    environ: Mapping[str, str] | None = None,
    slurm_present: bool | None = None,
) -> str:
    """The target to run on, a name in the manifest.

    In this order: the argument; `FLIGHTLOG_TARGET`; where Slurm is present, the one target whose provider it
    is; the target called `local`; the only target there is. A name that is not there, and no answer at all,
    are a `UsageError` that lists the targets. `slurm_present` is looked up where it is None.
    """
    environ = os.environ if environ is None else environ
    if argument is not None:
        return _checked(manifest, argument, "")
    wanted = read_settings(environ).target
    if wanted is not None:
        return _checked(manifest, wanted, ", which FLIGHTLOG_TARGET names,")
    on_slurm = [name for name in manifest.targets if manifest.provider(name, environ) == "slurm"]
    if len(on_slurm) == 1 and (slurm_here(environ) if slurm_present is None else slurm_present):
        return on_slurm[0]
    if LOCAL in manifest.targets:
        return LOCAL
    if len(manifest.targets) == 1:
        return manifest.targets[0]
    raise UsageError(
        f"which target of {manifest.name}? Name one, or set FLIGHTLOG_TARGET; {known_targets(manifest)}"
    )


def slurm_here(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this is a Slurm job, or a machine that can submit one."""
    environ = os.environ if environ is None else environ
    if environ.get("SLURM_JOB_ID"):
        return True
    from shutil import which  # brings every compression module along

    return which("sbatch", path=environ.get("PATH", os.defpath)) is not None


def _checked(manifest: Manifest, name: str, origin: str) -> str:
    if name in manifest.targets:
        return name
    near = nearest(name, list(manifest.targets))
    known = known_targets(manifest)
    hint = f"did you mean {near!r}? T{known[1:]}" if near else known
    raise UsageError(f"there is no target {name!r}{origin} in {manifest.name}; {hint}")


_WRITE = "write `per_worker_hour: 0.05`, or another key of `cost`"


def read_rates(
    file: Path, environ: Mapping[str, str], *, target: str | None, provider: str | None, workers: int = 1
) -> CostRates:
    """The rates in a YAML file, for a run of this target and provider.

    The file holds the keys of a manifest's `cost`, by themselves or under the key `cost`; of a whole
    manifest, the rates of the target of that name count, else those of all targets. The price of an instance
    is that of `workers` together, unless the file says otherwise. All that is wrong is one `ManifestError` or
    `UsageError`.
    """
    try:
        source = file.read_bytes().decode()
    except OSError as error:
        raise UsageError(f"cannot read the rates {file}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"the rates {file} are no text in UTF-8") from None
    if not source.strip():
        raise UsageError(f"{file} is empty: {_WRITE}")
    tree = read_tree(source, str(file))
    if tree.get("project") is not None:
        found = _of_manifest(source, file, environ, target, provider, workers)
    else:
        inner = tree.get("cost")
        alone = inner is not None and isinstance(tree.value, dict) and len(tree.value) == 1
        checker = Checker(inner if alone and inner is not None else tree, environ, folder=file.parent)
        rates = checker.rates()
        if checker.problems:
            problems = sorted(checker.problems, key=lambda each: each.line)
            raise ManifestError([problem.sentence(str(file)) for problem in problems])
        found = charges(
            rates, {}, file.parent, environ, provider=provider, workers_per_instance=workers, source=str(file)
        )
    if found is None:
        raise UsageError(f"{file} names no price: {_WRITE}")
    return found


def _of_manifest(
    source: str,
    file: Path,
    environ: Mapping[str, str],
    target: str | None,
    provider: str | None,
    workers: int,
) -> CostRates | None:
    manifest, folder = parse_manifest(source, file, str(file)), file.absolute().parent
    if target in manifest.targets:
        return charges_of(manifest.resolved(environ, target, raw=True), target, folder, environ)
    contents = manifest.resolved(environ, raw=True)
    if contents.cost is None:
        was = "the run has no target" if target is None else f"the run was on the target {target!r}"
        raise UsageError(f"{was}, and {file} says only what its own cost; {known_targets(manifest)}")
    return charges(
        contents.cost, contents.components, folder, environ, provider=provider, workers_per_instance=workers
    )
