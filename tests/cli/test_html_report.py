"""`flightlog report --format html` and `flightlog compare --format html`: where the page goes, and what is
refused."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from builders.compared_durations import closed_run, task_events
from builders.html_pages import Page
from builders.runs import at

from flightlog.cli.main import main
from flightlog.cli.output import file_name, put_page

NAME = "flightlog-report-run-20260520T035200Z-demo-a0000001"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(folder))
    monkeypatch.chdir(tmp_path)
    for number, factor in enumerate([1.0, 1.5]):
        events = [e for i in range(20) for e in task_events("fit", i, i, 0.2 * factor * (1 + i % 3 / 50))]
        closed_run(
            folder,
            events,
            token=f"a000000{number}",
            start_time=at(number),
            duration_s=20.0 * factor,
            end_time=at(number + 20 * factor),
        )
    return folder


def test_into_a_file(runs, capsys):
    assert main(["report", "--format", "html", "--output", "report.html"]) == 0
    assert capsys.readouterr() == ("", "")
    page = Page(Path("report.html").read_text(encoding="utf-8"))
    assert page.all("h1")[0].text == "Completed in 30.0s"
    assert any("Plotly" in one.text for one in page.all("script"))


def test_into_a_pipe_and_the_same_for_a_comparison(runs, capsys):
    assert main(["report", "--format", "html"]) == 0
    out, err = capsys.readouterr()
    assert (Page(out).all("h1")[0].text, err) == ("Completed in 30.0s", "")
    for words in (["compare"], ["report", "--compare", "a0000000", "a0000001"]):
        assert main([*words, "--format", "html"]) == 0
        out, err = capsys.readouterr()
        assert (Page(out).all("h1")[0].text, err) == ("B took 50% longer (20.0s → 30.0s)", "")


def test_a_terminal_gets_the_name_of_the_file_and_not_the_page(runs):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "flightlog", "report", "--format", "html"]
    ended = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    try:
        printed = os.read(ours, 1000)
    except OSError:  # nothing was written, and nobody holds the other end any more
        printed = b""
    os.close(ours)
    assert (ended.returncode, printed) == (0, b"")
    size = len(Path(f"{NAME}.html").read_text(encoding="utf-8")) / 1e6
    assert ended.stderr == f"flightlog: the page is {NAME}.html, {size:.1f} MB; --output names another file\n"


def test_a_condition_that_fails_still_leaves_the_page(runs, capsys):
    words = ["compare", "--format", "html", "--output", "changes.html", "--fail-on", "wall>10%"]
    assert main(words) == 1
    assert "failed: wall>10%" in capsys.readouterr().err
    assert (
        "The condition failed."
        in Page(Path("changes.html").read_text(encoding="utf-8")).by_id("verdict").text
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "--format", "html", "--tasks"], "the page holds all sections: leave out --tasks"),
        (["report", "--open"], "--open shows a page: add --format html"),
        (["compare", "--open", "--format", "md"], "--open shows a page: add --format html"),
        (
            ["report", "--format", "html", "--output", "no/such.html"],
            "cannot write no/such.html: there is no folder no",
        ),
    ],
)
def test_what_makes_no_sense_is_one_clear_message(runs, capsys, words, message):
    assert main(words) == 2
    assert capsys.readouterr().err.strip() == f"flightlog: {message}"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_browser_is_shown_a_temporary_file_or_the_one_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shown: list[str] = []

    def browse(address: str) -> bool:
        shown.append(address)
        return True

    put_page("<p>", "page", output=None, open_=True, stdout=Terminal(), browse=browse)
    [temporary] = tmp_path.glob("flightlog-*/page.html")
    put_page("<p>", "page", output=Path("asked.html"), open_=True, stdout=Terminal(), browse=browse)
    assert shown == [temporary.as_uri(), (tmp_path / "asked.html").as_uri()]
    assert (temporary.read_text(), Path("asked.html").read_text()) == ("<p>", "<p>")
    assert capsys.readouterr().out == ""


def test_where_there_is_no_browser_the_file_is_named(tmp_path, capsys):
    put_page("<p>", "page", output=tmp_path / "p.html", open_=True, browse=lambda address: False)
    assert capsys.readouterr().err == f"flightlog: no browser could be started here: open {tmp_path}/p.html\n"


def test_no_name_of_a_run_leads_out_of_the_folder():
    assert file_name("run-1") == "run-1.html"
    assert file_name("../../etc/<x>\n\0") == ".._.._etc_x_.html"
    assert len(file_name("x" * 1000)) == 125
