"""The manifest: found, read, and kept as it was written; what it says is worked out where it is used.

Rates may be in a file of their own, to say afterwards what a run cost: a `cost` as in a manifest, or a
manifest itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from flightlog.core.errors import ManifestError, UsageError
from flightlog.core.settings import expanded, read_settings
from flightlog.events import CostRates
from flightlog.session.charges import MANIFEST as MANIFEST_SOURCE
from flightlog.session.charges import charges, charges_of
from flightlog.session.expansion import expand
from flightlog.session.schema import OVERLAID, Component, Contents
from flightlog.session.validation import Checker, Problem, hint_for, nearest, problems_in
from flightlog.session.yaml_tree import Node, OverlayChange, changes, laid_over, read_tree

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
        return tuple(self.tree.entries("targets"))

    def provider(self, target: str, environ: Mapping[str, str]) -> str | None:
        """The provider of a target; None where that is not said or not known."""
        written = self.tree.text("targets", target, "provider")
        return None if written is None else expand(written, environ).text

    def for_target(self, target: str, environ: Mapping[str, str]) -> Manifest:
        """The manifest with the target's own overlay laid over it, and without the other targets.

        Doing it twice changes nothing more. A target that is not there is a `UsageError`.
        """
        if self.tree.get("targets", target) is None:
            raise UsageError(f"there is no target {target!r} in {self.name}; {known_targets(self)}")
        wanted = expand(self.tree.text("targets", target, "overlay") or "", environ).text
        whole = self
        if wanted and wanted in self.tree.entries("overlays") and wanted not in self.overlays:
            whole = with_overlay(self, [wanted])
        chosen = whole.tree.get("targets", target)
        if chosen is None:
            raise UsageError(
                f"the overlay {wanted!r} of {self.name} removes the target {target!r} it belongs to"
            )
        targets = replace(whole.tree.entries()["targets"], value={target: chosen})
        return replace(whole, tree=whole.tree.with_entry("targets", targets))

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
        _refuse(checker.problems, self.name)
        return contents

    def problems(self, environ: Mapping[str, str], target: str) -> list[Problem]:
        """What is wrong with one target with these variables; unset ones are marked as such."""
        return problems_in(self.for_target(target, environ).tree, environ, folder=self.path.parent)


def load_manifest(path: Path | str | None = None, *, cwd: Path | None = None) -> Manifest:
    """The manifest at a path, in a folder, or, without a path, in the working directory or nearest above it.

    The search ends at the top of the git checkout. Everything that is wrong whatever the variables hold is
    one `ManifestError`; no manifest at all is a `UsageError` that says where was looked.
    """
    here = (cwd or Path.cwd()).absolute()
    file, name = _find(here) if path is None else _named(here / expanded(path), str(path))
    return parse_manifest(read_source(file, name), file, name)


def read_source(file: Path, name: str) -> str:
    """The text of a file that messages call `name`. A `ManifestError` where it is not UTF-8, a `UsageError`
    where it cannot be read.
    """
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ManifestError(
            [f"{name}: is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"]
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror or error}") from error


def parse_manifest(
    source: str, path: Path, name: str | None = None, translate: Callable[[Node], Node] | None = None
) -> Manifest:
    """The manifest of a text; `path` is where it stands or would stand. Raises as `load_manifest`.

    `translate` makes a tree of this form of one that another tool's manifest has; the text stays as it is.
    """
    name = name or path.name
    tree = read_tree(source, name)
    tree = _with_target(tree if translate is None else translate(tree))
    _refuse(_check_all(tree), name)
    return Manifest(path.absolute(), name, source, tree)


def with_overlay(manifest: Manifest, names: Iterable[str]) -> Manifest:
    """The manifest with these overlays laid over it, one after the other; an unknown one is a
    `UsageError`.
    """
    for name in names:
        over = manifest.tree.get("overlays", name)
        if over is None or not isinstance(over.value, dict):
            hint = hint_for(name, list(manifest.tree.entries("overlays")), "it has no overlays")
            raise UsageError(f"there is no overlay {name!r} in {manifest.name}; {hint}")
        laid = laid_over(manifest.tree, over, name)
        assert laid is not None
        made = changes(manifest.tree, over, name)
        manifest = replace(
            manifest, tree=laid, overlays=(*manifest.overlays, name), changes=(*manifest.changes, *made)
        )
    return manifest


def known_targets(manifest: Manifest) -> str:
    """The targets there are, in words."""
    return f"the targets are {', '.join(manifest.targets)}"


def overlay_problems(tree: Node, over: Node, name: str, known: Iterable[Problem]) -> list[Problem]:
    """What is wrong with a manifest once this is laid over it, beyond the problems that are known."""
    path = f"overlays.{name}"
    if not isinstance(over.value, dict):
        return [] if over.value is None else [_no_mapping(over, path, "keys")]
    found = []
    for key, node in over.value.items():
        if key not in OVERLAID:
            text = f"{key!r} is no key of an overlay; {hint_for(key, OVERLAID)}"
            found.append(Problem(line=node.line, path=f"{path}.{key}", text=text, overlay=name))
    part = replace(over, value={key: node for key, node in over.value.items() if key in OVERLAID})
    laid = laid_over(tree, part, name, mark_removed=True)
    assert laid is not None
    said = {(problem.line, problem.path) for problem in known}
    return found + [one for one in problems_in(laid, None) if (one.line, one.path) not in said]


def _check_all(tree: Node) -> list[Problem]:
    """Problems of the manifest by itself, then those that each overlay brings."""
    problems = problems_in(tree, None)
    overlays = tree.get("overlays")
    if overlays is not None and not isinstance(overlays.value, dict | None):
        return [*problems, _no_mapping(overlays, "overlays", "names")]
    for name, over in tree.entries("overlays").items():
        for problem in overlay_problems(tree, over, name, problems):
            more = "" if problem.overlay else f" (with overlay {name!r})"
            problems.append(msgspec.structs.replace(problem, text=problem.text + more))
    return problems


def _no_mapping(node: Node, path: str, of: str) -> Problem:
    text = f"{str(node)!r} is no mapping of {of} to values"
    return Problem(line=node.line, path=path, text=text, overlay=path.partition(".")[2] or None)


def _with_target(tree: Node) -> Node:
    """The tree with a target: where none is written, this machine is it."""
    found = tree.get("targets")
    if not isinstance(tree.value, dict) or (found is not None and found.value not in (None, {})):
        return tree
    local = Node({"provider": Node("local", ASSUMED)}, ASSUMED)
    return tree.with_entry("targets", Node({"local": local}, ASSUMED))


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
    other = next(filter(Path.is_file, (folder / "flightlog.yml" for folder in looked)), None)
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
    source, folder = read_source(file, f"the rates {file}"), file.absolute().parent
    if not source.strip():
        raise UsageError(f"{file} is empty: {_WRITE}")
    tree = read_tree(source, str(file))
    components: Mapping[str, Component] = {}
    if tree.get("project") is None:
        inner = tree.get("cost")
        alone = inner is not None and len(tree.entries()) == 1
        checker = Checker(inner if alone and inner is not None else tree, environ, folder=folder)
        rates, named = checker.rates(), str(file)
        _refuse(checker.problems, named)
    else:
        manifest = parse_manifest(source, file, str(file))
        own = target if target in manifest.targets else None
        contents = manifest.resolved(environ, own, raw=True)
        if own is not None:
            return _priced(charges_of(contents, own, folder, environ), file)
        if contents.cost is None:
            was = "the run has no target" if target is None else f"the run was on the target {target!r}"
            raise UsageError(f"{was}, and {file} says only what its own cost; {known_targets(manifest)}")
        rates, components, named = contents.cost, contents.components, MANIFEST_SOURCE
    found = charges(
        rates, components, folder, environ, provider=provider, workers_per_instance=workers, source=named
    )
    return _priced(found, file)


def _priced(found: CostRates | None, file: Path) -> CostRates:
    if found is None:
        raise UsageError(f"{file} names no price: {_WRITE}")
    return found


def _refuse(problems: Iterable[Problem], name: str) -> None:
    """One `ManifestError` of all problems, in the order of their lines; nothing where there are none."""
    if said := [problem.sentence(name) for problem in sorted(problems, key=lambda each: each.line)]:
        raise ManifestError(said)
