"""Checks a manifest, and lists everything that is wrong with it, with line numbers.

    flightlog validate
    flightlog validate experiments/flightlog.yaml --target cluster

Unknown keys, wrong types, bad sizes and durations, unknown components, overlays and providers are found, in
overlays too, with the most similar valid name. A provider whose engine is not installed is fine.

Without `--target` all targets are checked, each with its overlay; variables that are not set are then only
noted, for the manifest may be meant for another machine. With `--target` they are problems.

Secrets in values, keys or comments cause a warning on standard error that names the line and the kind, never
the secret: a manifest is shared, and `${NAME}` takes a secret from a variable. What a run keeps of its
manifest is redacted, unless `FLIGHTLOG_MANIFEST_AS_WRITTEN=1` is set.

The exit code is 0 if nothing is wrong, 1 if something is, 2 if there is no manifest. `flightlog schema
manifest` prints the JSON Schema for editors.
"""

from __future__ import annotations

import os

import typer

from flightlog.cli.options import ManifestFile, complete_target, option
from flightlog.cli.output import note, put
from flightlog.core.errors import ManifestError


def validate(
    manifest: ManifestFile = None,
    target: str | None = option(
        "T", "Only this target. Default: all targets", autocompletion=complete_target
    ),
) -> None:
    """Check a manifest for mistakes.

    Example: flightlog validate --target cluster
    """
    from flightlog.core.text import plural
    from flightlog.session.manifest import load_manifest, pick_target
    from flightlog.session.secrets import written_secrets
    from flightlog.show.terminal import clean

    try:
        found = load_manifest(manifest)
    except ManifestError as error:
        put("".join(f"{clean(problem)}\n" for problem in error.problems))
        raise typer.Exit(1) from None
    for secret in written_secrets(found.source):
        note(
            f"{found.name}:{secret.line}: {clean(secret.path)}: looks like a secret ({secret.kind}); "
            "take it from a variable, as in ${NAME}"
        )
    chosen = found.targets if target is None else (pick_target(found, target),)
    problems = dict.fromkeys(problem for name in chosen for problem in found.problems(os.environ, name))
    wrong = [problem for problem in problems if target is not None or not problem.unset]
    for problem in problems:
        if problem not in wrong:
            note(problem.sentence(found.name))
    wrong.sort(key=lambda problem: problem.line)
    put("".join(f"{clean(problem.sentence(found.name))}\n" for problem in wrong))
    if wrong:
        raise typer.Exit(1)
    counts = [plural(len(found.targets), "target")]
    counts += [plural(len(found.tree.entries(f"{kind}s")), kind) for kind in ("component", "task")]
    put(f"{clean(found.name)}: ok, {', '.join(counts)}\n")
