"""Which target a session runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping

from flightlog.core.errors import UsageError
from flightlog.core.settings import read_settings
from flightlog.session.manifest import Manifest, known_targets
from flightlog.session.scalars import nearest

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
