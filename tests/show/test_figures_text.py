"""What a run recorded is shown in figures as it is: Plotly finds no markup in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from builders.hostile_run import hostile_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.charts.report_with_charts import ReportWithCharts, report_with_charts
from flightlog.show.figures import lines, rows
from flightlog.show.figures.style import name_text, plain, plain_back
from flightlog.show.figures.timeline import timeline_figure
from flightlog.show.limits import FigureLimits
from flightlog.show.terminal import brief, width_of
from flightlog.store.completing import open_run

OURS = re.compile(r"</?[bi]>|<br>|<extra></extra>|<extra>%\{fullData\.name\}</extra>")
ENTITY = re.compile(r"&(amp|lt|gt|#36);")


@given(st.text(), st.integers(2, 80))
def test_no_text_holds_markup_and_none_is_wider_than_asked(text: str, limit: int):
    found = plain(text, limit)
    assert set("<>$").isdisjoint(found)
    assert "&" not in ENTITY.sub("", found)
    assert width_of(brief(text, limit)) <= limit


@given(st.text())
def test_a_reader_sees_the_text_as_it_was(text: str):
    assert plain_back(plain(text)) == brief(text, FigureLimits.max_name_width)


def test_markup_entities_formulas_and_controls_are_spelled_out():
    assert plain('<a href="x">&lt; $x$\x1b[0m\n') == '&lt;a href="x"&gt;&amp;lt; &#36;x&#36;\\x1b[0m\\n'


def test_of_a_name_of_megabytes_only_the_beginning_is_read():
    class Counting(str):
        __slots__ = ()
        read: list[slice] = []

        def __getitem__(self, key: Any) -> str:
            self.read.append(key)
            return super().__getitem__(key)

    assert plain(Counting("x" * 1_000_000), 20) == "x" * 19 + "…"
    assert Counting.read == [slice(None, 80)]


def test_a_name_of_blanks_is_called_so():
    assert [name_text(name) for name in ("", " ", "\n", "a")] == ["(no name)", "(no name)", "(no name)", "a"]


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> ReportWithCharts:
    return report_with_charts(open_run(hostile_run(tmp_path_factory.mktemp("hostile"))))


def hostile_figures(look: ReportWithCharts) -> dict[str, Any]:
    drawn, report = look.drawn, look.report
    charts = (
        "concurrency",
        "worker_cpu",
        "worker_memory",
        "host_cpu",
        "host_memory",
        "device_memory",
        "device_use",
        "cache",
    )
    found = {
        name: lines.chart_figure(getattr(drawn, name)) for name in charts if getattr(drawn, name) is not None
    }
    assert drawn.timeline is not None
    assert report.details is not None
    return {
        **found,
        "timeline": timeline_figure(drawn.timeline, title=report.run.run_id),
        "durations": rows.durations_figure(drawn.durations),
        "waits": lines.waits_figure(drawn.waits) if drawn.waits else None,
        "critical": rows.critical_figure(report.critical_path) if report.critical_path else None,
        "spans": rows.spans_figure(report.details.span_tree),
        "shares": rows.shares_figure(report.time) if report.time else None,
        "cost": rows.cost_figure(report.cost_split) if report.cost_split else None,
    }


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def test_no_figure_of_a_hostile_run_holds_markup_but_our_own(look: ReportWithCharts):
    found = {name: figure for name, figure in hostile_figures(look).items() if figure is not None}
    assert len(found) > 10
    strange = {
        (name, text)
        for name, figure in found.items()
        for text in texts(figure.to_dict())
        if re.search(r"[<>$]|&(?!(amp|lt|gt|#36);)", OURS.sub("", text))
        and text != "%{customdata}<extra></extra>"
    }
    assert strange == set()


def test_names_of_a_hostile_run_never_reach_a_template(look: ReportWithCharts):
    templates = {
        trace["hovertemplate"]
        for figure in hostile_figures(look).values()
        if figure is not None
        for trace in figure.to_dict()["data"]
        if "hovertemplate" in trace
    }
    assert all(
        ("pwned" not in template and "customdata" in template) or "%{y" in template for template in templates
    )
    assert len(templates) < 12
