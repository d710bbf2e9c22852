"""`flightlog timeline`: in the terminal, as a picture, and into Perfetto's UI."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders.runs import at, make_run

from flightlog.cli.main import main
from flightlog.cli.timeline import has_display
from flightlog.events import TaskCompleted, TaskStarted


@pytest.fixture
def run(tmp_path: Path) -> Path:
    events = []
    for n in range(4):
        named = {"task": "simulate", "task_id": f"t{n}", "worker": f"worker-{n % 2}", "attempt": 1}
        events += [
            TaskStarted(timestamp=at(1 + n), queue_s=None, **named),
            TaskCompleted(timestamp=at(2 + n), args={}, duration_s=1.0, **named),
        ]
    return make_run(tmp_path, events)


def test_in_a_pipe_lanes_and_letters_are_printed(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["timeline", str(run)]) == 0
    said = capsys.readouterr()
    assert "completed in 10.0s · 4 attempts on 2 workers" in said.out
    assert "worker-0 │" in said.out
    assert "  A simulate" in said.out
    assert "\x1b" not in said.out


def test_a_png_and_an_svg_can_be_written_at_once(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    png, svg = tmp_path / "t.png", tmp_path / "t.svg"
    assert main(["timeline", str(run), "--png", str(png), "--svg", str(svg), "--width", "800", "--dark"]) == 0
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert svg.read_bytes().startswith(b"<?xml")
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        f"flightlog: the timeline is {png}\nflightlog: the timeline is {svg}\n",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([run.name, "t.png", "t.svg"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--png", "missing/t.png"], "cannot write missing/t.png: there is no folder missing"),
        (["--png", "t.png", "--perfetto"], "do one after the other"),
        (["--png", "t.png", "--width", "7"], "a width of 7 pixels is no size for this picture"),
        (["--run-id", "another"], "name one run, not 2"),
        (["--perfetto", "--perfetto-ui", "nowhere", "--no-open"], "is no address of Perfetto's UI"),
        (["--perfetto", "--perfetto-ui", "https://[x", "--no-open"], "is no address of Perfetto's UI"),
        (["--perfetto", "--port", "99999", "--no-open"], "99999 is no port"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    run: Path,
    tmp_path: Path,
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert main(["timeline", str(run), *options]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "t.png").exists()


def test_a_run_without_tasks_has_no_picture_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    empty = make_run(tmp_path)
    assert main(["timeline", str(empty)]) == 0
    assert "No task or span was recorded" in capsys.readouterr().out
    assert main(["timeline", str(empty), "--png", str(tmp_path / "t.png")]) == 2
    assert "there is no timeline to draw" in capsys.readouterr().err
    assert not (tmp_path / "t.png").exists()


BROWSER = """
import sys, urllib.parse, urllib.request
ui, _, address = sys.argv[1].partition("/#!/?url=")
asked = urllib.request.Request(urllib.parse.unquote(address), headers={"Origin": ui})
with urllib.request.urlopen(asked) as answer, open(sys.argv[2], "wb") as out:
    out.write(answer.read())
"""


def test_the_browser_is_started_with_a_link_from_which_it_gets_the_trace(run: Path, tmp_path: Path):
    script, got = tmp_path / "browser.py", tmp_path / "got.json.gz"
    script.write_text(BROWSER)
    done = subprocess.run(
        [sys.executable, "-m", "flightlog", "timeline", str(run), "--perfetto", "--port", "0"],
        env={**os.environ, "BROWSER": f"{sys.executable} {script} %s {got}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "flightlog: Perfetto has loaded the trace"
    names = [event.get("name") for event in json.loads(gzip.decompress(got.read_bytes()))["traceEvents"]]
    assert names.count("simulate") == 4


@pytest.mark.parametrize(
    ("environ", "platform", "shown"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "w"}, "linux", True),
        ({"BROWSER": "firefox"}, "linux", True),
        ({}, "darwin", True),
        ({"SSH_CONNECTION": "x"}, "darwin", False),
    ],
)
def test_no_browser_takes_over_a_terminal(environ: dict[str, str], platform: str, shown: bool):
    assert has_display(environ, platform) is shown


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        (["--dark"], "--png F"),
        (["--width", "900"], "--png F"),
        (["--height", "900"], "--png F"),
        (["--open"], "--perfetto"),
        (["--no-open"], "--perfetto"),
        (["--port", "9002"], "--perfetto"),
        (["--perfetto-ui", "http://127.0.0.1:1"], "--perfetto"),
        (["--png", "x.png", "--open"], "--perfetto"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    run: Path, capsys: pytest.CaptureFixture[str], options: list[str], missing: str
) -> None:
    assert main(["timeline", str(run), *options]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert f"add {missing}" in said.err
