from __future__ import annotations

import hashlib

from builders.runs import make_run

from flightlog.events import Metric
from flightlog.store import layout
from flightlog.store.integrity import FileProblem, FileSum, verify_files, write_checksums


def closed_run(tmp_path):
    path = make_run(tmp_path, [Metric(name="loss", value=1.0)])
    (path / layout.PARQUET).mkdir()
    (path / layout.PARQUET / "metrics.parquet").write_bytes(b"PAR1")
    (path / "plan").mkdir()
    (path / "plan" / "note.txt").write_bytes(b"hello")
    return path


def test_checksums_cover_every_file_but_themselves_and_the_snapshots(tmp_path):
    path = closed_run(tmp_path)
    sums = write_checksums(path)
    assert list(sums) == ["metrics.jsonl", "plan/note.txt", "recorder.json", "run.json"]
    assert sums["plan/note.txt"] == FileSum(hashlib.sha256(b"hello").hexdigest(), 5)
    assert write_checksums(path) == sums


def test_a_run_as_it_was_closed_has_no_findings(tmp_path):
    path = closed_run(tmp_path)
    write_checksums(path)
    (path / layout.PARQUET / "metrics.parquet").unlink()
    (path / ".run.json.7-0badcafe.tmp").touch()
    assert verify_files(path) == []


def test_changed_missing_and_added_files_are_found(tmp_path):
    path = closed_run(tmp_path)
    write_checksums(path)
    was, now = (hashlib.sha256(text).hexdigest() for text in (b"hello", b"jello"))
    (path / "plan" / "note.txt").write_bytes(b"jello")
    size = (path / "metrics.jsonl").stat().st_size
    with (path / "metrics.jsonl").open("ab") as out:
        out.write(b"{}\n")
    removed = (path / "recorder.json").stat().st_size
    (path / "recorder.json").unlink()
    (path / "tasks.jsonl").touch()
    assert verify_files(path) == [
        FileProblem("changed", "metrics.jsonl", f"held {size} bytes, holds {size + 3}"),
        FileProblem("changed", "plan/note.txt", f"SHA-256 was {was}, is {now}"),
        FileProblem("missing", "recorder.json", f"held {removed} bytes"),
        FileProblem("added", "tasks.jsonl", "not there when the run closed"),
    ]


def test_a_run_without_checksums_or_with_torn_ones_says_so(tmp_path):
    path = closed_run(tmp_path)
    assert verify_files(path) == [
        FileProblem("missing", "checksums.json", "the run was not closed, there is nothing to compare with")
    ]
    for content in (b'{"a', b'{"a": 1}', b"[]"):
        (path / layout.CHECKSUMS).write_bytes(content)
        assert [(found.kind, found.file) for found in verify_files(path)] == [
            ("unreadable", "checksums.json")
        ]
