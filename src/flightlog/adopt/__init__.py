"""Recordings of other tools, made into runs: one reader per tool, one writer of runs.

The kinds of recordings that can be adopted, and how a path is recognized.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from flightlog.adopt.run_maker import Adopter, AdoptOptions, make_runs
from flightlog.adopt.source_files import document, head
from flightlog.core.errors import UsageError
from flightlog.store import layout
from flightlog.store.layout import Adoption


@cache
def adopters() -> dict[str, Adopter]:
    """Every kind by name: each module of this package that has an `adopter`."""
    modules = [import_module(f"{__name__}.{one.name}") for one in iter_modules(__path__)]
    found = [getattr(module, "adopter", None) for module in modules]
    return {one.name: one for one in found if isinstance(one, Adopter)}


def kind_of_path(path: Path, kind: str | None = None, options: AdoptOptions | None = None) -> str:
    """The kind of the recording at a path: as given, or recognized. Raises `UsageError` that says what was
    found.
    """
    known = adopters()
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    if kind is not None:
        if kind not in known:
            raise UsageError(f"there is no kind {kind!r}. The kinds are {', '.join(known)}")
        return kind
    if options is not None and options.mapping is not None:
        return "jsonl"
    found = {name: why for name, one in known.items() if (why := one.recognize(path)) is not None}
    if len(found) == 1:
        return next(iter(found))
    if found:
        fits = "; ".join(f"{name} ({why})" for name, why in found.items())
        raise UsageError(f"{path} fits several kinds: {fits}. Say which with --kind")
    raise UsageError(_unknown(path, known))


def adopt_path(
    path: Path,
    runs_dir: Path,
    *,
    kind: str | None = None,
    options: AdoptOptions | None = None,
    refused: list[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Adoption]:
    """Adopt the recordings at a path, one run per recording; one that was adopted before is found again.

    Of several recordings, those that cannot be adopted are skipped and their reasons appended to `refused`;
    without it the first one raises. Raises `UsageError` where the path holds no recording of a known kind,
    and for Slurm's accounting.
    """
    options = options or AdoptOptions()
    name = kind_of_path(path, kind, options)
    if options.mapping is not None and name != "jsonl":
        raise UsageError(f"--mapping is for plain JSONL, and --kind says {name}")
    adopter = adopters()[name]
    return make_runs(adopter, adopter.sources(path), runs_dir, options, refused, progress)


def _unknown(path: Path, known: dict[str, Adopter]) -> str:
    if path.is_dir() and "flightlog_version" in document(path / layout.RUN):
        return f"{path} is a run of Flightlog already: flightlog report {path}"
    kinds = "; ".join(f"{name}: {one.title}" for name, one in known.items())
    return f"{path} is not recognized: {_content_text(path)}. The kinds are {kinds}. Say which with --kind"


def _content_text(path: Path) -> str:
    """What a path holds, in a few words."""
    if path.is_dir():
        try:
            names = sorted(one.name for one in path.iterdir())
        except OSError as error:
            return f"a folder that cannot be read ({error.strerror or error})"
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        return f"a folder with {', '.join(names[:5])}{more}" if names else "an empty folder"
    start = head(path)
    return f"a file that begins with {start[:60]!r}" if start else "a file without content"
