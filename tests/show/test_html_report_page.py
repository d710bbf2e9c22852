"""The page of a report, as a browser reads it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders.hostile_run import TRICKS, hostile_run
from builders.html_pages import Page
from builders.runs import at, make_run
from msgspec.structs import replace

from flightlog.analyze.charts.report_with_charts import ReportWithCharts, report_with_charts
from flightlog.analyze.charts.results import Cells, Timeline, TimelineRow, Waits
from flightlog.analyze.diagnosis.diagnose import diagnose
from flightlog.analyze.findings.base import Finding
from flightlog.analyze.report.report import report_bytes
from flightlog.events import (
    CacheLookup,
    Event,
    Failure,
    Metric,
    ResourceSample,
    SpanEvent,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    WorkerReady,
)
from flightlog.show.html.report_page import report_page
from flightlog.store.completing import open_run

LIBRARY = "window.Plotly = null;"
"""In place of the library, which takes a while to read."""
TRACEBACK = (
    'Traceback (most recent call last):\n  File "model.py", line 7, in step\nValueError: <b>negative</b>\n'
)


def a_run() -> list[Event]:
    events: list[Event] = [WorkerReady(timestamp=at(0), worker=f"w{n}", host="node-1", pid=n) for n in (1, 2)]
    for n in range(6):
        key, worker, start = f"t{n}", f"w{n % 2 + 1}", 1.0 + n // 2 * 3
        same: dict[str, Any] = {"task": "simulate", "task_id": key, "worker": worker, "queue_s": start}
        events += [
            TaskSubmitted(timestamp=at(0), task="simulate", task_id=key, args={"seed": n}),
            TaskStarted(timestamp=at(start), **same),
            TaskCompleted(timestamp=at(start + 2.5), duration_s=2.5, args={"seed": n}, **same)
            if n < 5
            else TaskFailed(
                timestamp=at(start + 2),
                duration_s=2.0,
                args={"seed": n},
                error_type="ValueError",
                error_message="<b>negative</b>",
                **same,
            ),
            CacheLookup(
                timestamp=at(start), task="simulate", task_id=key, result="hit" if n == 0 else "miss", key=key
            ),
            SpanEvent(
                timestamp=at(start), name="solve", span_id=f"{n + 1:016x}", trace_id="1" * 32, duration_s=2.0
            ),
            ResourceSample(
                timestamp=at(start), scope="node", host="node-1", cpu_percent=50.0, memory_used_bytes=2**30
            ),
        ]
    events.append(
        Failure(
            timestamp=at(9),
            scope="task",
            task="simulate",
            task_id="t5",
            error_type="ValueError",
            message="<b>negative</b>",
            traceback=TRACEBACK,
            fingerprint="f1",
        )
    )
    return events


@pytest.fixture
def look(tmp_path: Path) -> ReportWithCharts:
    return report_with_charts(open_run(make_run(tmp_path, a_run())))


def page_of(look: ReportWithCharts, **more: Any) -> Page:
    return Page(report_page(look, plotly_js=LIBRARY, **more))


def values(page: Page) -> dict[str, Any]:
    return {
        str(one.attributes["data-path"]): json.loads(str(one.attributes["data-value"]))
        for one in page.with_attribute("data-path")
    }


def at_path(document: Any, path: str) -> Any:
    for step in path.split("."):
        document = document[step]
    return document


def test_the_figures_on_the_page_are_those_of_the_json(look):
    found = values(page_of(look))
    report = json.loads(report_bytes(look.report))
    assert found == {path: at_path(report, path) for path in found}
    assert found.keys() >= {
        "run.status",
        "run.duration_s",
        "tasks.submitted",
        "tasks.completed",
        "tasks.failed",
        "workers.utilization",
        "cache.hit_rate",
        "failures.count",
    }
    assert (found["tasks.completed"], found["tasks.failed"]) == (5, 1)


def test_the_verdict_stands_first_in_words(look):
    page = page_of(look)
    assert page.all("h1")[0].text == "Completed in 10.0s, with 1 failed task"
    assert "5 of 6 tasks completed, 1 failed." in page.by_id("verdict").text
    assert page.by_id("verdict").has_class("is-warn")
    sections = [one.attributes["id"] for one in page.all("section")]
    assert sections[:2] == ["verdict", "timeline"]
    assert sections[-3:] == ["failures", "environment", "recording"]


@pytest.mark.parametrize(
    ("status", "headline", "style"),
    [
        ("completed", "Completed in 10.0s, with 1 failed task", "is-warn"),
        ("failed", "Failed after 10.0s, with 1 failed task", "is-bad"),
        ("interrupted", "Interrupted after 10.0s, with 1 failed task", "is-bad"),
        ("<b>odd</b>", "<b>odd</b> after 10.0s, with 1 failed task", "is-warn"),
    ],
)
def test_every_end_has_its_words_and_its_colour(look, status, headline, style):
    changed = replace(look, report=replace(look.report, run=replace(look.report.run, status=status)))
    page = page_of(changed)
    assert page.all("h1")[0].text == headline
    assert page.by_id("verdict").has_class(style)


def test_a_browser_may_run_the_two_scripts_of_the_page_and_fetch_nothing(look):
    page = page_of(look)
    [policy] = [one.attributes["content"] for one in page.all("meta") if one.attributes.get("http-equiv")]
    [own] = [one.text for one in page.all("script") if "type" not in one.attributes]
    scripts = [own, page.by_id("plotly").text]
    assert scripts[1] == LIBRARY
    digests = [f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'" for code in scripts]
    assert policy == (
        f"default-src 'none'; script-src {' '.join(digests)}; style-src 'unsafe-inline'; img-src data: "
        "blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.with_attribute("src") == []
    assert all(str(one.attributes["href"]).startswith("#") for one in page.with_attribute("href"))


def test_every_link_of_the_contents_leads_to_a_part_and_every_id_is_there_once(look):
    page = page_of(look)
    ids = [one.attributes["id"] for one in page.with_attribute("id")]
    assert len(ids) == len(set(ids))
    assert {str(one.attributes["href"])[1:] for one in page.all("a")} <= set(ids)


def test_every_figure_says_in_words_what_it_shows_and_has_its_data(look):
    page = page_of(look)
    plots = {str(one.attributes["data-figure"]): one for one in page.with_attribute("data-figure")}
    assert [*plots] == [
        "timeline",
        "concurrency",
        "waiting",
        "shares",
        "host_cpu",
        "host_memory",
        "durations",
        "waits",
        "critical",
        "spans",
        "cache",
    ]
    for name, place in plots.items():
        assert len(str(place.attributes["aria-label"])) > 20
        assert place.attributes["tabindex"] == "0"
        assert "A script draws this figure" in place.attributes["data-empty"]
        assert {"data", "layout"} == json.loads(page.by_id(f"{name}-data").text).keys()
    assert len(page.all("figcaption")) == len(plots)


def test_what_was_not_recorded_is_left_out_and_named_in_one_line(tmp_path):
    page = page_of(report_with_charts(open_run(make_run(tmp_path))))
    assert page.with_attribute("data-figure") == []
    sections = [one.attributes["id"] for one in page.all("section")]
    assert sections == ["verdict", "failures", "environment", "recording"]
    assert page.by_id("absent").text == "No tasks, workers, cache lookups, cost or GPU recorded."
    assert page.all("h1")[0].text == "Completed in 10.0s"
    assert "No task was recorded." in page.by_id("verdict").text


def test_each_metric_has_its_curve_and_a_row_of_the_table(tmp_path):
    events = [
        Metric(timestamp=at(n), name=name, value=n / 4, step=n) for n in range(5) for name in ("loss", "<b>")
    ]
    events += [
        Metric(timestamp=at(9), name="loss", value=None, step=9, nonfinite="nan"),
        Metric(timestamp=at(9), name="once", value=1.0),
    ]
    page = page_of(report_with_charts(open_run(make_run(tmp_path, events))))
    part = page.by_id("metrics")
    assert [one.attributes["data-figure"] for one in page.with_attribute("data-figure")] == [
        "metric-1",
        "metric-2",
    ]
    assert "1 of 6 values was NaN or infinite, first at step 9." in part.text
    assert "1 metric has one point, and no curve." in part.text
    assert [one.text for one in page.all("th") if one.attributes.get("scope") == "row"][:3] == [
        "<b>",
        "loss",
        "once",
    ]


def test_failures_stand_with_their_cause_the_remedy_and_the_traceback(tmp_path):
    run = open_run(make_run(tmp_path, a_run()))
    found = diagnose(run)
    page = page_of(report_with_charts(run), diagnosis=found)
    told = page.by_id("failures").text
    assert found.answer.replace("`", "") in told
    assert found.causes[0].suggestions[0].replace("`", "") in told
    assert [one.text for one in page.all("pre")] == [TRACEBACK.rstrip("\n")]
    assert "What went wrong" in page.by_id("verdict").text
    assert "flightlog diagnose" in page_of(report_with_charts(run)).by_id("failures").text


def test_the_environment_stands_with_its_packages(look):
    around = {("package", "numpy"): "2.3", ("machine", "usable CPUs"): "8", ("git", "branch"): "main"}
    text = page_of(look, environment=around).by_id("environment").text
    assert "Packages: 1 entry" in text
    assert "numpy" in text
    assert "Usable CPUs8" in text
    assert "Git branchmain" in text


def test_where_density_is_drawn_the_caption_says_so(look):
    page = page_of(replace(look, drawn=replace(look.drawn, timeline=dense(4, 10))))
    assert page.all("figcaption")[0].text == (
        "Each cell is a time step on a worker, in the colour of the name that took most of it; the "
        "fuller the colour, the"
        " busier it was. This shows density and not single attempts."
    )


def dense(lanes: int, columns: int) -> Timeline:
    cells = [(lane, column) for lane in range(lanes) for column in range(columns)]
    return Timeline(
        since=at(0),
        length_s=float(columns),
        names=["a", "b"],
        lanes=[TimelineRow(label=f"worker {n}", worker=f"w{n}") for n in range(lanes)],
        bars=None,
        cells=Cells(
            lane=[lane for lane, _ in cells],
            start_s=[column * 1.0 for _, column in cells],
            length_s=[1.0] * len(cells),
            name=[n % 2 for n in range(len(cells))],
            attempts=[12] * len(cells),
            busy=[0.123456789] * len(cells),
        ),
        marks=[],
        attempts=1_000_000,
        workers=lanes,
        failures=0,
        notes=["this shows density and not single attempts"],
    )


def test_nothing_that_a_run_recorded_becomes_an_element(tmp_path):
    look = report_with_charts(open_run(hostile_run(tmp_path)))
    text = report_page(look, plotly_js=LIBRARY)
    page = Page(text)
    assert {one.name for one in page.elements} <= {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "a",
        "div",
        "header",
        "p",
        "strong",
        "button",
        "noscript",
        "nav",
        "details",
        "summary",
        "ol",
        "ul",
        "li",
        "main",
        "section",
        "svg",
        "circle",
        "path",
        "h1",
        "h2",
        "h3",
        "dl",
        "dt",
        "dd",
        "span",
        "small",
        "figure",
        "figcaption",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "script",
        "footer",
        "code",
        "pre",
    }
    assert len([one for one in page.all("script") if "type" not in one.attributes]) == 1
    assert not any(re.match("on|style$", name) for one in page.elements for name in one.attributes)
    assert TRICKS["template"][:7] in page.by_id("report").text
    found = values(page)
    report = json.loads(report_bytes(look.report))
    assert found == {path: at_path(report, path) for path in found}


def test_names_of_200_000_characters_make_no_larger_page(tmp_path):
    short, long = (
        report_page(
            report_with_charts(open_run(hostile_run(tmp_path / str(size), name_bytes=size))),
            plotly_js=LIBRARY,
        )
        for size in (10_000, 200_000)
    )
    assert len(long) < 1.1 * len(short)


def test_a_run_of_spans_alone_is_drawn_and_told_by_its_spans(tmp_path):
    spans: list[Event] = [
        SpanEvent(timestamp=at(n), name="step", span_id=f"{n + 1:016x}", trace_id="1" * 32, duration_s=0.9)
        for n in range(3)
    ]
    page = page_of(report_with_charts(open_run(make_run(tmp_path, spans))))
    assert "No tasks, 3 spans." in page.by_id("verdict").text
    assert values(page)["spans.count"] == 3
    assert [one.text for one in page.all("figcaption")][:3] == [
        "Each bar is one span, in the colour of its name.",
        "The wall time of the run, split; no worker is known.",
        "How long spans of each name took, on a logarithmic axis.",
    ]


def test_no_heading_skips_a_level(tmp_path):
    page = page_of(report_with_charts(run := open_run(make_run(tmp_path, a_run()))), diagnosis=diagnose(run))
    levels = [int(one.name[1]) for one in page.elements if re.fullmatch("h[1-6]", one.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_a_command_in_a_finding_is_code(look):
    sentence = "ran out in `fit`: `flightlog devices` explains it; try `less`"
    finding = Finding(
        kind="device_memory", seconds=None, share=None, sentence=sentence, evidence={}, where=[]
    )
    verdict = replace(look.report.verdict, advice="`less`")
    page = page_of(replace(look, report=replace(look.report, findings=[finding], verdict=verdict)))
    assert [one.text for one in page.all("code")][:4] == ["less", "fit", "flightlog devices", "less"]
    assert "`" not in page.by_id("verdict").text


@pytest.mark.parametrize(
    ("queue_s", "said"),
    [
        ([3.0, 4.0], "All of them waited longer than they ran."),
        ([0.5, 1.0], "None waited longer than it ran."),
        ([0.5, 4.0], "Above the dashed line it waited longer than it ran."),
    ],
)
def test_the_diagonal_is_spoken_of_only_where_it_divides(look, queue_s, said):
    waits = Waits(
        names=["a"],
        name=[0, 0],
        queue_s=queue_s,
        run_s=[2.0, 2.0],
        attempts=2,
        queue_edges_s=[],
        run_edges_s=[],
        grid=[],
        notes=[],
    )
    page = page_of(replace(look, drawn=replace(look.drawn, waits=waits)))
    [caption] = [one.text for one in page.all("figcaption") if "waited to start" in one.text]
    assert caption.endswith(f"then ran. {said}")


@pytest.mark.parametrize(
    "theme", [0, 1, 2, 3], ids=["light", "dark by the system", "dark by choice", "print"]
)
def test_every_text_stands_out_from_what_is_behind_it(theme):
    rules = files("flightlog.show.html").joinpath("page.css").read_text(encoding="utf-8")
    colors = dict(re.findall(r"--(\w+): (#\w{6});", re.split(r"\n +color-scheme:", rules)[theme + 1]))
    faint = {
        (front, back): contrast(colors[front], colors[back])
        for front in ("ink", "quiet", "accent", "good", "bad", "warn")
        for back in ("page", "card", "soft")
        if contrast(colors[front], colors[back]) < 4.5
    }
    assert faint == {}


def contrast(first: str, second: str) -> float:
    """As the accessibility guidelines reckon it: 1 for the same, 21 for black on white."""

    def light(color: str) -> float:
        parts = (int(color[n : n + 2], 16) / 255 for n in (1, 3, 5))
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, bright = sorted((light(first), light(second)))
    return (bright + 0.05) / (dark + 0.05)


def test_submissions_that_another_tool_did_not_record_are_not_none(tmp_path: Path) -> None:
    events = [TaskCompleted(timestamp=at(2), task="sim", task_id="t", args={}, worker="w1", duration_s=1.0)]
    page = page_of(report_with_charts(open_run(make_run(tmp_path, events))))
    [tile] = [
        one for one in page.with_attribute("data-path") if one.attributes["data-path"] == "tasks.submitted"
    ]
    assert (tile.text, values(page)["tasks.submitted"]) == ("not recorded", 0)


def test_spans_of_the_timeline_have_colours_of_their_own_however_many_names_there_are(tmp_path: Path) -> None:
    events: list[Event] = [
        TaskCompleted(
            timestamp=at(9), task="sim", task_id="t", args={}, worker="w1", duration_s=8.0, span_id="d0"
        )
    ]
    for n in range(30):
        start, length = 1 + n / 10, 8 - n / 5
        events.append(
            SpanEvent(
                timestamp=at(start),
                name=f"level {n}",
                span_id=f"d{n + 1}",
                parent_id=f"d{n}",
                trace_id="1" * 32,
                duration_s=length,
            )
        )
    look = report_with_charts(open_run(make_run(tmp_path, events)))
    bars = [
        trace
        for trace in json.loads(page_of(look).by_id("timeline-data").text)["data"]
        if trace["type"] == "bar"
    ]
    assert len(bars) == 5
    assert len({trace["marker"]["color"] for trace in bars}) == 5


def test_one_task_is_said_as_one(tmp_path: Path) -> None:
    events = [TaskCompleted(timestamp=at(2), task="sim", task_id="t", args={}, worker="w1", duration_s=1.0)]
    page = page_of(report_with_charts(open_run(make_run(tmp_path, events))))
    assert "1 task completed." in page.by_id("verdict").text
