"""The door of exporters, and the place where an export appears."""

from __future__ import annotations

import errno
from pathlib import Path
from tempfile import gettempdir

import duckdb
import pytest

from flightlog.core.errors import MissingExtra, UsageError
from flightlog.export.base import (
    ASIDE,
    Exported,
    ExportOptions,
    exporter_names,
    extras_of,
    find_exporter,
    refuse,
    whole_file,
    whole_folder,
)
from flightlog.show.outcomes import exported_text


def test_the_built_in_exporters_come_through_the_door_of_plugins() -> None:
    assert set(exporter_names()) >= {
        "csv",
        "json",
        "modelops",
        "otlp",
        "otlp-json",
        "parquet",
        "perfetto",
        "prometheus",
        "ro-crate",
    }
    assert [find_exporter(name).name for name in ("csv", "json", "parquet", "perfetto")] == [
        "csv",
        "json",
        "parquet",
        "perfetto",
    ]


def test_a_name_that_nobody_offers_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"there is no exporter 'perfeto'\. Did you mean 'perfetto'\? Installed are csv, "
    ):
        find_exporter("perfeto")


def test_a_library_that_is_missing_is_named_with_the_line_that_installs_it() -> None:
    with pytest.raises(MissingExtra, match=r"the exporter 'otlp' needs .*: pip install 'flightlog\[otel\]'"):
        with extras_of("otlp"):
            raise ModuleNotFoundError("No module named 'opentelemetry'", name="opentelemetry")


def test_an_entry_point_that_leads_nowhere_is_not_taken_for_a_missing_library() -> None:
    with pytest.raises(UsageError, match="the exporter 'csv' leads nowhere"), extras_of("csv"):
        raise ModuleNotFoundError("No module named 'flightlog.export.gone'", name="flightlog.export.gone")


def test_options_without_a_use_are_refused_by_name() -> None:
    refuse("x", ExportOptions(tables=("a",), follow=True), takes=("tables", "follow"))
    with pytest.raises(UsageError, match="--follow does not go with --to x: leave it out"):
        refuse("x", ExportOptions(follow=True))


def test_a_file_appears_when_it_is_whole_and_replaces_the_one_before(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    output.write_text("before")
    with whole_file(output) as made:
        made.write_text("after")
        assert output.read_text() == "before"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.json", "after")]


def test_what_fails_on_the_way_leaves_nothing_behind(tmp_path: Path) -> None:
    def half_a_file() -> None:
        with whole_file(tmp_path / "out.json") as made:
            made.write_text("half")
            raise ZeroDivisionError

    def half_a_folder() -> None:
        with whole_folder(tmp_path / "folder") as folder:
            (folder / "half").write_text("half")
            raise ZeroDivisionError

    (tmp_path / "out.json").write_text("before")
    for fails in (half_a_file, half_a_folder):
        with pytest.raises(ZeroDivisionError):
            fails()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out.json", "before")]


def test_in_a_folder_that_is_there_only_files_of_the_same_name_are_replaced(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "inner").mkdir(parents=True)
    for name in ("mine.txt", "a.csv", "inner/b.csv"):
        (output / name).write_text("before")
    with whole_folder(output) as folder:
        (folder / "inner").mkdir()
        for name in ("a.csv", "inner/b.csv", "inner/c.csv"):
            (folder / name).write_text("after")
    found = {
        path.relative_to(output).as_posix(): path.read_text() for path in output.rglob("*") if path.is_file()
    }
    assert found == {"mine.txt": "before", "a.csv": "after", "inner/b.csv": "after", "inner/c.csv": "after"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        duckdb.IOException("IO Error: x: No space left on device\n more"),
    ],
    ids=["system", "duckdb"],
)
def test_a_full_disk_is_one_line_that_says_so(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(UsageError) as raised, whole_file(tmp_path / "out"):
        raise error
    assert str(raised.value) == f"cannot write {tmp_path}/out: No space left on device"


@pytest.mark.parametrize("said_by_duckdb", [False, True])
def test_where_the_folder_of_temporary_files_is_full_that_folder_is_named(
    tmp_path: Path, said_by_duckdb: bool
) -> None:
    aside = f"{gettempdir()}/{ASIDE}x1/rows.parquet"
    error: Exception = OSError(errno.ENOSPC, "No space left on device", aside)
    if said_by_duckdb:
        error = duckdb.IOException(f'IO Error: Could not write file "{aside}": No space left on device')
    with pytest.raises(UsageError) as caught, whole_file(tmp_path / "out"):
        raise error
    assert str(caught.value) == (
        f"cannot write {tmp_path / 'out'}: no space is left in {gettempdir()}, where parts of it wait "
        "meanwhile; name a"
        " folder with more room in TMPDIR"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("rows of tasks", "1 row of tasks"),
        ("entities", "1 entity"),
        ("counter values", "1 counter value"),
        ("series", "1 series"),
    ],
)
def test_one_of_a_thing_is_said_as_one(what: str, said: str) -> None:
    exported = Exported(to="csv", where="out", counts={what: 1})
    assert exported_text(exported, written=True, size_bytes=2) == f"Wrote out (2 B): {said}\n"
