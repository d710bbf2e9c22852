"""Rates in a file of their own, to say afterwards what a run cost: a `cost` as in a manifest, or a manifest
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from flightlog.core.errors import ManifestError, UsageError
from flightlog.events import CostRates
from flightlog.session.charges import charges, charges_of
from flightlog.session.manifest import known_targets, parse_manifest
from flightlog.session.validation import Checker
from flightlog.session.yaml_tree import read_tree

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
