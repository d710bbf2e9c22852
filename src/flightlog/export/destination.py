"""Where an export is written: a file or folder that appears only when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

from flightlog.core.errors import UsageError

ASIDE = "flightlog-"
"""How the names of our folders among the temporary files begin."""


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """A path beside `output` to write to; it becomes `output` when the context ends well, and is gone
    otherwise.

    A file that is there already is replaced. What the system or DuckDB refuses is a `UsageError` that says
    why.
    """
    made = _beside(output)
    try:
        with _refusals_told(output):
            yield made
            made.replace(output)
    finally:
        made.unlink(missing_ok=True)


@contextmanager
def whole_folder(output: Path) -> Iterator[Path]:
    """A new folder beside `output` to write into; it becomes `output` when the context ends well, and is gone
    otherwise.

    In a folder that is there already, the files of the same names are replaced and others left alone. What
    the system or DuckDB refuses is a `UsageError` that says why.
    """
    made = _beside(output)
    try:
        with _refusals_told(output):
            made.mkdir()
            yield made
            if output.is_dir() and any(output.iterdir()):
                _move_into(made, output)
            else:
                made.replace(output)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _beside(output: Path) -> Path:
    return output.absolute().with_name(f".{output.name[:100]}.{uuid4().hex}.tmp")


def _move_into(made: Path, output: Path) -> None:
    for folder, _, names in os.walk(made):
        inside = output / Path(folder).relative_to(made)
        inside.mkdir(exist_ok=True)
        for name in names:
            (Path(folder) / name).replace(inside / name)


@contextmanager
def _refusals_told(output: Path) -> Iterator[None]:
    """An `OSError` or an error of DuckDB's as a `UsageError` of one line, without the names of our own
    passing files.
    """
    import duckdb

    try:
        yield
    except (OSError, duckdb.Error) as error:
        if "No space left on device" in str(error) and f"{gettempdir()}{os.sep}{ASIDE}" in str(error):
            raise UsageError(
                f"cannot write {output}: no space is left in {gettempdir()}, where parts of it wait meanwhile; name a"
                " folder with more room in TMPDIR"
            ) from error
        raise UsageError(_refused(output, error)) from error


def _refused(output: Path, error: Exception) -> str:
    if isinstance(error, OSError):
        ours = error.filename is None or Path(os.fsdecode(error.filename)).name.startswith(
            f".{output.name[:100]}."
        )
        of = "" if ours else f" ({error.filename})"
        return f"cannot write {output}: {error.strerror or error}{of}"
    full = "No space left on device" in str(error)
    return f"cannot write {output}: {'No space left on device' if full else str(error).splitlines()[0]}"
