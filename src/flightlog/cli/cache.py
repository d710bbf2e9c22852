"""Shows, explains and prunes the cached results of `@cacheable` functions.

    flightlog cache stats
    flightlog cache explain simulate
    flightlog cache prune --older-than 30d --max-bytes 10GB --dry-run

`stats` shows the number and size of results by function, how long they took to compute, and how often the
runs recorded here used them. `explain` shows what is cached for a function (its full name, or the last parts
of it) or for a key (six hex digits or more), and why the last lookup missed: `never seen`, `code changed`,
`arguments changed` (and which), `expired`, `damaged` or `recompute asked for`.

`prune` removes results that were not used for `--older-than`, then the least recently used ones until the
rest takes no more than `--max-bytes`; damaged and unfinished files are always removed. `--function` prunes
one function only. A removed result is computed again when it is needed. A file that could not be removed is
named on standard error, and the exit code is 1.

Results are pickles, and reading one can run code: a folder that other users can write to is refused, with
exit code 2.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from flightlog.cli.options import AnyFormat, RunsDir, flag, option, removal_limits, runs_folder
from flightlog.cli.output import json_text, note, put, put_result, text_options
from flightlog.core.errors import ManifestError, UsageError
from flightlog.core.settings import cache_folder
from flightlog.session.cache.store import DEFAULT_FOLDER, CacheFolder

DOING = "reading the results that are kept"

_HELP = "Inspect and prune cached results.\n\nExample: flightlog cache stats"
cache = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=_HELP)

_CACHE_DIR = (
    "Folder of cached results. Default: FLIGHTLOG_CACHE_DIR, the manifest's local_cache or .flightlog/cache"
)
CacheDir = Annotated[Path | None, option("D", _CACHE_DIR, "--cache-dir", default=...)]


@cache.command()
def stats(cache_dir: CacheDir = None, runs_dir: RunsDir = None, format_: AnyFormat = "text") -> None:
    """Show the number and size of cached results by function.

    Example: flightlog cache stats --format json
    """
    from flightlog.session.cache.contents import recorded_hits
    from flightlog.session.cache.contents import stats as count
    from flightlog.show.outcomes import stats_text

    put_result(count(_opened(cache_dir), recorded_hits(runs_folder(runs_dir))), format_, stats_text)


@cache.command()
def prune(
    older_than: str | None = option("AGE", "Remove results that were not used for this long, such as 30d."),
    max_bytes: str | None = option(
        "SIZE", "Remove the least recently used results until the rest fits, such as 10GB."
    ),
    function: str | None = option("F", "Only results of this function."),
    dry_run: bool = flag("--dry-run", "Dry run: show what would be removed."),
    cache_dir: CacheDir = None,
) -> None:
    """Remove cached results that are old, damaged or too many.

    Example: flightlog cache prune --older-than 30d --max-bytes 10GB --dry-run
    """
    import time

    from flightlog.core.text import plural
    from flightlog.core.units import format_bytes
    from flightlog.session.cache import contents
    from flightlog.show.terminal import clean

    age_s, limit = removal_limits(older_than, max_bytes)
    opened, now = _opened(cache_dir), time.time()
    entries = list(contents.stored(opened))
    chosen = contents.plan_prune(entries, older_than_s=age_s, max_bytes=limit, function=function, now=now)
    gone = []
    for entry in chosen:
        try:
            if not dry_run:
                contents.remove(opened, entry)
        except OSError as error:
            note(f"{entry.path}: {error.strerror or error}")
            continue
        gone.append(entry)
        put(f"{entry.path.name[:12]}  {format_bytes(entry.bytes)}  {clean(entry.function)}\n")
    paths = {entry.path for entry in gone}
    left = [entry for entry in entries if entry.path not in paths]
    if not dry_run:
        contents.forget_codes(opened, gone, left)
        for path in contents.leftovers(opened, now):
            path.unlink(missing_ok=True)
    removed = "Would remove" if dry_run else "Removed"
    freed, rest = (format_bytes(sum(entry.bytes for entry in some)) for some in (gone, left))
    put(f"{removed} {plural(len(gone), 'result')}, {freed}; {plural(len(left), 'result')}, {rest} left.\n")
    if len(gone) < len(chosen):
        raise typer.Exit(1)


@cache.command()
def explain(
    what: Annotated[
        str, typer.Argument(metavar="FUNCTION|KEY", help="Name of a function, or the first digits of a key.")
    ],
    cache_dir: CacheDir = None,
    format_: AnyFormat = "text",
) -> None:
    """Show what is cached, and why the last lookup missed.

    Example: flightlog cache explain simulate
    """
    from flightlog.session.cache.contents import explain as explain_what
    from flightlog.show.outcomes import explained_text

    found = explain_what(_opened(cache_dir), what)
    shown = (explained_text(one, **text_options()) for one in found)
    put(json_text(found) if format_ == "json" else "\n".join(shown))


def _opened(folder: Path | None) -> CacheFolder:
    from flightlog.session.cache.contents import check

    opened = CacheFolder(folder or _of_manifest())
    check(opened)
    return opened


def _of_manifest() -> str | None:
    """Where the project's manifest has its results kept; None where it does not say, or there is none that
    can be read.
    """
    from flightlog.session.manifest import load_manifest, pick_target
    from flightlog.session.task_options import local_cache

    if cache_folder() is not None:
        return None
    try:
        manifest = load_manifest()
        contents = manifest.resolved(os.environ, pick_target(manifest))
    except ManifestError as error:
        note(f"{error.problems[0]}; looking at {DEFAULT_FOLDER}")
        return None
    except UsageError:  # no manifest, or no telling which target
        return None
    return local_cache(contents, manifest.path.parent, os.environ)
