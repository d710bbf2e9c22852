"""`flightlog devices`, through `main`."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import msgspec
import pytest
from builders.device_training import training
from builders.runs import make_run

from flightlog.analyze.devices.report import devices_of_run
from flightlog.analyze.devices.results import DeviceReport, MemoryCurve
from flightlog.cli.main import main
from flightlog.show.devices import devices_text, over_time
from flightlog.show.terminal import ascii_text
from flightlog.store.completing import open_run

Captured = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "devices"
PAGE = (ROOT / "docs" / "device-memory.md").read_text()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    return folder


def test_the_text_answers_first_and_is_no_wider_than_the_terminal(runs: Path, capsys: Captured) -> None:
    make_run(runs, training())
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[:5] == [
        "Device memory · run-20260520T035200Z-demo-a1b2c3d4 · 4 ranks · 608 events",
        "",
        "What matters:",
        "  - Rank 2 ran out of memory 15.0s in, in `epoch > train`, asking for 6.0 GiB. Memory grew by 2.0",
        "    GiB with each `train`, 54.0 GiB over 28 of them: a leak used it up. Try finding what keeps",
    ]
    for title in (
        "Peaks:",
        "Rank 0, device 0: allocated memory over 15.0s",
        "Phases:",
        "Leak suspected:",
        "Out of memory:",
        "Ranks:",
    ):
        assert title in lines
    assert max(map(len, lines)) <= 100


def test_narrow_terminals_get_fewer_columns(runs: Path) -> None:
    report = devices_of_run(open_run(make_run(runs, training())))
    for width in (80, 100):
        assert max(map(len, devices_text(report, width=width).splitlines())) <= width
    assert ascii_text(devices_text(report, width=80)).isascii()


def test_the_json_holds_the_report_and_the_markdown_its_tables(runs: Path, capsys: Captured) -> None:
    make_run(runs, training())
    assert main(["schema", "device-report"]) == 0
    schema = msgspec.json.decode(capsys.readouterr().out)
    assert main(["devices", "latest", "--format", "json"]) == 0
    out = capsys.readouterr().out
    jsonschema.validate(json.loads(out), schema)
    report = msgspec.json.decode(out, type=DeviceReport)
    assert [(one.rank, one.status, len(one.leaks)) for one in report.sessions] == [
        (0, "completed", 0),
        (1, "completed", 0),
        (2, "incomplete", 2),
        (3, "completed", 0),
    ]
    assert main(["devices", "latest", "--format", "md"]) == 0
    out = capsys.readouterr().out
    assert "| Phase | Rank | Times | Each time | Grew | Over | By chance | Full in |" in out


def test_ranks_and_phases_are_picked_and_written_to_a_file(
    runs: Path, tmp_path: Path, capsys: Captured
) -> None:
    make_run(runs, training())
    file = tmp_path / "devices.json"
    words = ["devices", "--rank", "0", "--rank", "3", "--phase", "train", "--format", "json", "-o", str(file)]
    assert main(words) == 0
    assert capsys.readouterr().out == ""
    report = json.loads(file.read_text())
    assert [(one["rank"], [phase["phase"] for phase in one["phases"]]) for one in report["sessions"]] == [
        (0, ["train"]),
        (3, ["train"]),
    ]
    assert main(["devices", "--rank", "9"]) == 2
    assert "its ranks are 0, 1, 2, 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["export-v2.json", "export-v3.json", "legacy.json", "sink-rank0", "sink-rank1"]
)
@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_recordings_of_other_tools_are_explained(name: str, form: str, capsys: Captured) -> None:
    assert main(["devices", str(GOLDEN / name), "--format", form]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) > 10


def test_what_cannot_be_explained_says_what_to_do(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    make_run(runs, [])
    assert main(["devices"]) == 2
    assert capsys.readouterr().err == (
        "flightlog: run-20260520T035200Z-demo-a1b2c3d4: this run recorded no device memory; record it with"
        " `flightlog.track_device_memory()` or `flightlog run --device-memory`\n"
    )
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["devices", str(tmp_path / "notes.txt")]) == 2
    assert "notes.txt cannot be read as device telemetry" in capsys.readouterr().err
    assert main(["devices", "gone.jsonl"]) == 2
    assert capsys.readouterr().err == "flightlog: there is no file gone.jsonl\n"


def test_nothing_that_was_recorded_can_paint_or_move_the_cursor(
    tmp_path: Path, runs: Path, capsys: Captured
) -> None:
    events = training(ranks=1, steps=2)
    for event in events:
        event.context, event.host, event.collector = "evil\x1b[31m|*", "h\x1b[2J", "c\x07"
    make_run(runs, events)
    for form in ("text", "md"):
        assert main(["devices", "--format", form]) == 0
        assert not set(capsys.readouterr().out) & {"\x1b", "\x07"}


def test_a_peak_of_one_moment_is_seen_in_the_plot() -> None:
    curve = MemoryCurve(
        after_s=[0.0, 1.0, 9.0], allocated_bytes=[1, 9, None], reserved_bytes=[], device_used_bytes=[]
    )
    assert over_time(curve, curve.allocated_bytes, 10.0, 5) == [9.0, 9.0, 9.0, 9.0, 9.0]
    assert over_time(curve, [1, 9, 2], 10.0, 10) == [1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 2.0]


COMMANDS = [
    line.partition("  #")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.strip().splitlines()
]
LOOKING = [command for command in COMMANDS if command.startswith(("flightlog devices", "flightlog sql"))]


def test_the_page_has_commands_to_look_with() -> None:
    assert len(LOOKING) >= 5


@pytest.mark.parametrize("command", LOOKING)
def test_each_command_of_the_page_answers(command: str, tmp_path: Path) -> None:
    make_run(tmp_path / ".flightlog" / "runs", training())
    (tmp_path / "telemetry.json").write_bytes((GOLDEN / "export-v3.json").read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "flightlog.cli.main", *shlex.split(command)[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
