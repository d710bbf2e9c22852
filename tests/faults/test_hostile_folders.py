"""Folders that somebody else made: no file in them stops, floods or crashes a command, and none hides the
other runs."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

import msgspec
import pytest
from builders.runs import make_run
from builders.small_run import small_run

import flightlog
from flightlog.analyze.devices.oom import BUNDLE
from flightlog.cli.main import main
from flightlog.events import Metric
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.limits import StoreLimits
from flightlog.store.read.files import read_regular
from flightlog.store.run import Run

GOLDEN = Path(__file__).parents[1] / "golden"
_COMMANDS = """
import contextlib, io, resource, sys
from flightlog.cli.main import main
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
runs, good, *bad = sys.argv[1:]
over_all = [["list"], ["list", "--format", "json"], ["trends", "--project", "demo"], ["sql", "SELECT count(*) FROM runs", "--all"],
            ["gc", "--older-than", "9999d", "--dry-run"]]
of_one = [[name, one] for one in bad for name in ("verify", "report")]
of_one += [[name, bad[0]] for name in ("diagnose", "timeline", "devices")]
for words in [[*words, "--runs-dir", runs] for words in (*over_all, ["compare", bad[0], good])] + of_one:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    print(words[0], code, said.getvalue().strip().replace(chr(10), " / ")[-300:])
"""
"""Commands over a folder with bad runs in it, and over those runs; in a process that can be ended, with 4 GiB
at most."""


def answers(runs: Path, good: Path, *bad: Path) -> dict[str, set[str]]:
    """The exit codes of commands, by name; it is an error if one of them raises or does not end."""
    words = [sys.executable, "-c", _COMMANDS, runs, good, *bad]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    found: dict[str, set[str]] = {}
    for line in done.stdout.splitlines():
        name, code, *_ = line.split()
        found.setdefault(name, set()).add(code)
    return found


def a_pipe(file: Path) -> None:
    os.mkfifo(file)


def an_endless_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def a_huge_file(file: Path) -> None:
    huge = file.parent.parent.parent / "huge"
    with huge.open("wb") as out:
        out.truncate(20 << 30)
    file.symlink_to(huge)


def a_folder(file: Path) -> None:
    file.mkdir()


BAD: list[tuple[Callable[[Path], None], str]] = [
    (a_pipe, "run.json: it is not a regular file"),
    (an_endless_device, "run.json: it is not a regular file"),
    (a_huge_file, "run.json: it is larger than 32 MiB"),
    (a_folder, "run.json: it is not a regular file"),
]


def test_runs_with_a_bad_document_are_listed_with_the_reason_and_so_are_the_others(tmp_path, capsys):
    runs = tmp_path / "runs"
    good = make_run(runs)
    bad = [
        make_run(runs, [Metric(name="m", value=1.0)], token=f"b000000{number}") for number in range(len(BAD))
    ]
    for run, (spoil, _) in zip(bad, BAD, strict=True):
        (run / layout.RUN).unlink()
        spoil(run / layout.RUN)
    codes = answers(runs, good, *bad)
    assert {name: codes[name] for name in ("list", "sql", "gc", "trends", "report")} == {
        "list": {"0"},
        "sql": {"0"},
        "gc": {"0"},
        "trends": {"0"},
        "report": {"0"},
    }
    assert main(["list", "--format", "json", "--runs-dir", str(runs)]) == 0
    listed = msgspec.json.decode(capsys.readouterr().out)
    assert {run["run_id"]: (run["status"], run["problem"]) for run in listed} == {
        good.name: ("completed", None),
        **{run.name: ("unknown", problem) for run, (_, problem) in zip(bad, BAD, strict=True)},
    }


def test_no_document_is_waited_for(tmp_path):
    good, bad = make_run(tmp_path), small_run(tmp_path, "b0000000")
    for name in (
        layout.ENVIRONMENT,
        layout.RECORDER,
        layout.SUMMARY,
        layout.CHECKSUMS,
        layout.PLAN,
        layout.LOCK,
    ):
        (bad / name).unlink()
        os.mkfifo(bad / name)
    (bad / layout.PARQUET).mkdir()
    for name in ("current.json", "summary.json"):
        os.mkfifo(bad / layout.PARQUET / name)
    assert answers(tmp_path, good, bad)["report"] == {"0"}


def test_links_to_regular_files_are_followed(tmp_path):
    run = make_run(tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / run.name).symlink_to(run)
    stored = run / layout.RUN
    stored.rename(tmp_path / "moved.json")
    stored.symlink_to(tmp_path / "moved.json")
    found = read_document(tmp_path / "runs" / run.name / layout.RUN, layout.RunInfo)
    assert (found.problem, found.value is not None and found.value.run_id) == (None, run.name)


def test_a_document_up_to_the_limit_is_read_and_no_larger_one(tmp_path):
    file = tmp_path / "x.json"
    file.write_bytes(b"1" * 1000)
    assert read_regular(file, 1000) == b"1" * 1000
    with pytest.raises(OSError, match="it is larger than 0 MiB"):
        read_regular(file, 999)
    with file.open("r+b") as out:
        out.truncate(StoreLimits.max_document_bytes + 1)
    assert read_document(file, dict).problem == "x.json: it is larger than 32 MiB"


def test_the_size_of_a_file_that_the_system_does_not_tell_is_no_limit(tmp_path):
    assert b"MemTotal" in read_regular("/proc/meminfo")


def changed(run: Path, name: str, **values: object) -> None:
    """The first object of a file, with other values."""
    first, newline, rest = (run / name).read_bytes().partition(b"\n")
    if name.endswith(".json"):
        first, newline, rest = (run / name).read_bytes(), b"", b""
    (run / name).write_bytes(json.dumps({**json.loads(first), **values}).encode() + newline + rest)


def ends_well(*words: object) -> bool:
    """Whether a command answers, or says what is wrong, without an exception."""
    return main([str(word) for word in words]) in {0, 1}


def test_a_line_may_have_a_number_beyond_64_bits(tmp_path):
    run = small_run(tmp_path)
    changed(run, "tasks.jsonl", seq=1 << 64)
    assert all(ends_well(command, run) for command in ("report", "verify", "diagnose", "timeline"))


def test_a_start_that_only_the_name_tells_is_unknown_and_so_is_the_duration(tmp_path, capsys):
    run = small_run(tmp_path)
    (run / layout.RUN).unlink()
    os.mkfifo(run / layout.RUN)
    (run / layout.RECORDER).unlink()
    assert main(["report", str(run), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["run"]
    assert (found["start_time"], found["duration_s"]) == (None, None)
    assert main(["report", str(run)]) == 0
    assert "when it started, and with it how long it took, is unknown" in " ".join(
        capsys.readouterr().out.split()
    )


@pytest.mark.parametrize("number", [1 << 64, 1 << 62, 957])
def test_a_number_that_its_writer_never_gave_out_is_a_damaged_line_and_no_loss(tmp_path, capsys, number):
    run = small_run(tmp_path)
    changed(run, "metrics.jsonl", seq=number)
    assert main(["verify", str(run)]) == 1
    said = capsys.readouterr().out
    assert "metrics: 1 line of writer w0000001 lost: no. 0\n" in said
    assert "metrics: 1 line of writer w0000001 damaged: a number that cannot be true\n" in said
    assert Run(run).completeness().lost == {"metrics": 1}


@pytest.mark.parametrize("count", [1 << 63, 1 << 64, -(1 << 80)])
def test_a_count_that_no_column_holds_is_null_in_sql(tmp_path, capsys, count):
    run, other = small_run(tmp_path), small_run(tmp_path, "b0000000")
    changed(run, layout.RUN, tasks_submitted=count)
    changed(other, layout.RUN, tasks_submitted=7)
    query = "SELECT run_id, tasks_submitted FROM runs ORDER BY run_id"
    assert main(["sql", query, "--all", "--format", "json", "--runs-dir", str(tmp_path)]) == 0
    assert msgspec.json.decode(capsys.readouterr().out) == [
        {"run_id": run.name, "tasks_submitted": None},
        {"run_id": other.name, "tasks_submitted": 7},
    ]


@pytest.mark.parametrize("memory", [[1], 10**400], ids=["a list", "beyond all floats"])
def test_a_size_that_is_no_number_is_unknown(tmp_path, memory):
    run, other = small_run(tmp_path), small_run(tmp_path, "b0000000")
    changed(run, layout.ENVIRONMENT, memory_bytes=memory, cgroup_memory_bytes=memory)
    assert main(["compare", str(other), str(run)]) == 0
    assert ends_well("report", run)
    assert ends_well("diagnose", run)


@pytest.mark.parametrize("command", ["devices", "report", "diagnose"])
def test_a_bundle_may_be_nested_to_any_depth(tmp_path, command):
    run = small_run(tmp_path)
    for number, depth in enumerate((400, 3000, 100_000)):
        bundle = run / layout.OOM / f"{number}-x" / BUNDLE
        bundle.parent.mkdir(exist_ok=True)
        bundle.write_text('{"a":' * depth + "1" + "}" * depth)
    assert ends_well(command, run)


@pytest.mark.parametrize("name", ["null", "[1]", '"\\ud800"'])
def test_metrics_of_any_name_and_tags_of_any_key_can_be_exported_for_perfetto(tmp_path, name):
    run = small_run(tmp_path)
    for file, field in (("tasks.jsonl", "args"), ("spans.jsonl", "tags"), ("metrics.jsonl", "name")):
        odd = name if field == "name" else '{"":1,"\\ud800":{"\\u0000":1}}'
        lines = (run / file).read_text().splitlines()
        odd_lines = [json.dumps({**json.loads(line), field: "here"}).replace('"here"', odd) for line in lines]
        (run / file).write_text("\n".join(odd_lines) + "\n")
    assert main(["export", str(run), "--to", "perfetto", "--output", str(tmp_path / "trace.json")]) == 0
    json.loads((tmp_path / "trace.json").read_bytes())


def packed(folder: Path, name: str, data: bytes) -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
@pytest.mark.parametrize("source", ["export-v3.json", "legacy.json", "sink-rank0/segment-000001.jsonl"])
def test_a_gzip_that_breaks_off_is_read_as_far_as_it_goes_or_refused_in_a_line(
    tmp_path, capsys, source, share
):
    whole = gzip.compress((GOLDEN / "devices" / source).read_bytes())
    file = packed(tmp_path, f"{Path(source).name}.gz", whole[: max(12, int(len(whole) * share))])
    assert main(["devices", str(file)]) in {0, 2}
    said = capsys.readouterr()
    assert said.err.count("\n") == (0 if said.out else 1)


@pytest.mark.parametrize(("head", "name"), [(b'{"events":[', "a.json.gz"), (b"[{", "b.json.gz")])
def test_a_gzip_that_unpacks_to_gigabytes_takes_a_bounded_memory(tmp_path, head, name):
    file = tmp_path / name
    piece = b" " * (16 << 20)
    packer = gzip.GzipFile(file, "wb", compresslevel=1)
    packer.write(head)
    packed_once = gzip.compress(piece, 1)
    packer.close()
    with file.open("ab") as out:
        for _ in range(40):  # 640 MiB, as members of one file
            out.write(packed_once)
    script = (
        "import re, sys\nfrom flightlog.cli.main import main\ncode = main(['devices', sys.argv[1]])\n"
        "peak = re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())\n"
        "print(code, int(peak[1]) >> 10)"  # `ru_maxrss` may be that of the process which started this one
    )
    done = subprocess.run(
        [sys.executable, "-c", script, file], capture_output=True, text=True, timeout=300, check=False
    )
    code, peak_mib = map(int, done.stdout.split()[-2:])
    assert (code, done.stderr.count("\n")) == (2, 1), done.stderr[-500:]
    assert peak_mib < 900


def test_a_run_that_only_its_owner_may_read_is_listed_as_unknown_beside_the_others(tmp_path: Path) -> None:
    """The list is made as user `nobody`; tests that do not run as root have no other user."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    runs = tmp_path / "runs"
    for name in ("open", "closed"):
        with flightlog.record(name, runs_dir=runs):
            pass
    (closed,) = runs.glob("run-*-closed-*")
    begun = runs / "run-20260101T000000Z-begun-aaaaaaaa" / "segments" / "w1"
    begun.mkdir(parents=True)
    program = """
import contextlib, io, os, sys
from flightlog.cli.main import main
command = ["list", "--runs-dir", sys.argv[1], "--format", "json"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(command)  # the interpreter's own folder may be root's alone, so all is loaded before
os.setegid(65534)
os.seteuid(65534)
sys.exit(main(command))
"""
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder != Path(gettempdir()):
            folder.chmod(0o755)
    closed.chmod(0o700)
    begun.chmod(0o000)
    listed = subprocess.run(
        [sys.executable, "-c", program, runs],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert listed.returncode == 0, listed.stderr
    assert {one["project"]: one["status"] for one in json.loads(listed.stdout)} == {
        "open": "completed",
        "closed": "unknown",
        "begun": "unknown",
    }
