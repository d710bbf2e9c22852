"""Lists of runs as a person reads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.show.runs import runs_text
from flightlog.show.terminal import clean, cut_middle, width_of, wrap
from flightlog.store.catalogue import RunEntry

MOMENT = "2026-05-20T03:52:00.000000Z"
anything = st.text(st.characters(), max_size=60)


def entry(project: str = "sir-demo", status: str = "completed", failed: int = 0) -> RunEntry:
    run_id = f"run-20260520T035200Z-{project}-a1b2c3d4"
    return RunEntry(
        Path("runs", run_id), run_id, project, status, MOMENT, None, 10.0, 48, 48 - failed, failed, None
    )


FULL = """\
Run                                     Status     Started                  Duration  Tasks
run-20260520T035200Z-sir-demo-a1b2c3d4  completed  2026-05-20 03:52:00 UTC     10.0s  48 of 48
"""
AT_80 = """\
Run                                     Status     Duration  Tasks
run-20260520T035200Z-sir-demo-a1b2c3d4  completed     10.0s  48 of 48
"""
AT_60 = """\
Run                                     Status     Duration
run-20260520T035200Z-sir-demo-a1b2c3d4  completed     10.0s
"""
AT_40 = """\
Run                            Status
run-20260520T035200…-a1b2c3d4  completed
"""


@pytest.mark.parametrize(("width", "text"), [(None, FULL), (94, FULL), (80, AT_80), (60, AT_60), (40, AT_40)])
def test_columns_give_way_before_the_name_of_a_run_does(width: int | None, text: str) -> None:
    assert runs_text([entry()], width=width) == text


def test_a_run_that_was_killed_took_at_least_as_long_and_had_as_many_tasks_as_it_last_said() -> None:
    killed, settled = entry(status="crashed", failed=2), replace(entry(status="crashed"), end_time=MOMENT)
    lines = runs_text([killed, settled, entry(status="running")]).splitlines()[1:]
    assert [line.partition("UTC")[2].strip().split("  ") for line in lines] == [
        ["≥ 10.0s", "≥ 46 of ≥ 48, ≥ 2 failed"],
        ["10.0s", "48 of 48"],
        ["10.0s", "48 of 48"],
    ]


def test_nothing_is_cut_where_lines_may_be_of_any_length() -> None:
    assert entry("p" * 300).run_id in runs_text([entry("p" * 300)])


@given(anything, st.integers(1, 200), st.integers(0, 48))
def test_no_line_is_wider_than_the_terminal(project: str, width: int, failed: int) -> None:
    lines = runs_text([entry(project, failed=failed), entry()], width=width).splitlines()
    assert len(lines) == 3
    assert max(map(width_of, lines)) <= max(width, 3)


@given(anything, st.integers(1, 80), st.integers(0, 12))
def test_text_cut_in_its_middle_keeps_its_end_where_there_is_room(text: str, width: int, keep: int) -> None:
    text = clean(text)
    keep = min(keep, len(text))
    cut = cut_middle(text, width, keep)
    assert width_of(cut) <= width
    if width_of(text) <= width:
        assert cut == text
    elif width_of(text[len(text) - keep :]) < width:
        assert cut.endswith(text[len(text) - keep :])


@given(anything, st.integers(1, 80))
def test_wrapped_text_keeps_every_word(text: str, width: int) -> None:
    text = clean(text)
    lines = wrap(text, width)
    assert " ".join(lines).split() == text.split()
    assert all(width_of(line) <= width or " " not in line for line in lines)
