"""A result in, a figure out: what is drawn is what was measured, and Plotly takes it."""

from __future__ import annotations

import json
import math
from itertools import combinations, pairwise

import drawn_values as values
import msgspec
import pytest

from flightlog.analyze.charts.results import Bars, Cells, ChartSeries, TimelineMark
from flightlog.analyze.report.critical_path import CriticalPath
from flightlog.analyze.report.spans import SpanTree
from flightlog.show.figures import lines, rows, style
from flightlog.show.figures.style import (
    BAD,
    DARK,
    EDGE,
    GOOD,
    LIGHT,
    OTHER,
    PALETTE,
    QUIET,
    WARN,
    clock_text,
    colors_of,
    day_text,
    duration_text,
    duration_ticks,
    ink_on,
    time_scale,
)
from flightlog.show.figures.timeline import timeline_figure

FIGURES = values.every_figure()


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_a_plotly_figure_that_users_can_change(name: str):
    from plotly.graph_objects import Figure

    figure = FIGURES[name].__class__(FIGURES[name])
    assert type(figure) is Figure
    assert figure.update_layout(title="Mine", width=500).layout.title.text == "Mine"


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_of_kinds_that_need_no_server_and_no_webgl(name: str):
    assert {trace.type for trace in FIGURES[name].data} <= {"bar", "scatter", "heatmap", "icicle"}


@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_has_a_button_that_sends_it_away(name: str):
    assert "sendChartToCloud" in FIGURES[name].layout.modebar.remove
    assert style.CONFIG["plotlyServerURL"] == ""


def test_there_is_no_figure_of_nothing():
    assert timeline_figure(values.timeline(lanes=[], bars=None, marks=[])) is None
    assert timeline_figure(values.timeline(bars=None, marks=[])) is None
    assert lines.chart_figure(values.chart(series=[])) is None
    assert lines.chart_figure(values.chart(series=[ChartSeries(label="w", at_s=[1.0], value=[None])])) is None
    assert (
        lines.chart_figure(values.chart(series=[ChartSeries(label="w", at_s=[1.0], value=[math.nan])]))
        is None
    )
    assert lines.curve_figure(values.curve(value=[None] * 4), length_s=1.0) is None
    assert rows.durations_figure([]) is None
    assert rows.durations_figure([values.spread(most_s=0.0)]) is None
    assert lines.waits_figure(values.waits(queue_s=[], run_s=[], name=[])) is None
    assert rows.critical_figure(CriticalPath(of="tasks", wall_s=1.0, links=0, parts=[], longest=[])) is None
    assert rows.spans_figure(SpanTree(paths=0, unplaced=0, nodes=[])) is None
    assert rows.cost_figure(values.cost(useful=0.0, retried=0.0, idle=0.0, starting=0.0)) is None
    assert lines.trends_figure(values.trend(0)) is None
    assert rows.comparison_figure(values.comparison(wall_s=values.UNKNOWN)) is None
    assert rows.ratios_figure(values.comparison(durations=[])) is None


def test_a_timeline_has_a_trace_a_name_with_a_bar_an_attempt():
    simulate, collect, failed = timeline_figure(values.timeline()).data
    assert (simulate.name, list(simulate.y), list(simulate.base), list(simulate.x)) == (
        "simulate",
        ["w-1", "w-2"],
        [0.0, 10.0],
        [40.0, 50.0],
    )
    assert (collect.name, list(collect.y), list(collect.base), list(collect.x)) == (
        "collect",
        ["w-1"],
        [50.0],
        [30.0],
    )
    assert (failed.name, list(failed.x), list(failed.y)) == ("failed", [60.0], ["w-2"])
    assert (failed.marker.symbol, failed.marker.color) == ("x", BAD)
    assert (
        simulate.customdata[1]
        == "<b>simulate</b> failed, attempt 2<br>50.0s from 0:10 (03:52:10 UTC)<br>on w-2<br>t2"
    )


def test_spans_stand_in_rows_without_a_label_below_the_bar_they_are_inside_of():
    figure = timeline_figure(values.timeline(nested=values.nested(), marks=[]))
    rows = figure.layout.yaxis.categoryarray
    assert figure.layout.yaxis.ticktext == (rows[0], rows[3]) == ("w-1", "w-2")
    *_, solve, load = figure.data
    assert (solve.name, solve.y, solve.base, solve.x) == (
        "solve (inside)",
        (rows[1],) * 2,
        (0.0, 20.0),
        (15.0, 10.0),
    )
    assert (load.name, load.y, load.base, load.x) == ("load (inside)", (rows[2],), (5.0,), (5.0,))
    assert load.customdata == ("<b>load</b> completed<br>5.0s from 0:05 (03:52:05 UTC)",)


def test_spans_outside_of_tasks_stand_in_the_last_rows_under_a_label_of_their_own():
    outside = values.nested(rows=[2], names=["solve", "save"])
    for timeline in (values.timeline(outside=outside, nested=values.nested()), values.dense(outside=outside)):
        figure = timeline_figure(timeline)
        rows = figure.layout.yaxis.categoryarray
        assert figure.layout.yaxis.ticktext[-1] == rows[-2] == "outside of tasks"
        solve, save = (one for one in figure.data if one.name.endswith("(outside)"))
        assert (solve.name, solve.y, save.name, save.y) == (
            "solve (outside)",
            (rows[-2],) * 2,
            "save (outside)",
            (rows[-1],),
        )
        inside = {one.name: one.marker.color for one in figure.data if one.name == "solve (inside)"}
        assert set(map(str, inside.values())) <= {str(solve.marker.color)}


def test_a_worker_may_be_called_as_the_rows_of_spans_outside_of_tasks_are():
    lanes = values.lanes("w-1", "outside of tasks")
    figure = timeline_figure(values.timeline(lanes=lanes, outside=values.nested(rows=[2])))
    assert len(set(figure.layout.yaxis.categoryarray)) == 4


@pytest.mark.parametrize("workers", [2, 59, 60, 61, 90])
def test_however_many_workers_there_are_the_rows_of_spans_outside_of_tasks_have_their_label(workers: int):
    lanes = values.lanes(*(f"w-{n}" for n in range(workers)))
    figure = timeline_figure(values.timeline(lanes=lanes, outside=values.nested(rows=[2])))
    rows, named = list(figure.layout.yaxis.categoryarray), figure.layout.yaxis.ticktext
    apart = {after - before for before, after in pairwise(rows.index(name) for name in named)}
    assert (named[0], named[-1], rows.index(named[-1])) == ("w-0", "outside of tasks", workers)
    assert min(apart) * (figure.layout.height - 100) / len(rows) > 10


def test_spans_outside_of_tasks_are_drawn_where_no_task_began():
    figure = timeline_figure(values.timeline(lanes=[], bars=None, marks=[], outside=values.nested(rows=[2])))
    assert figure.layout.yaxis.ticktext == ("outside of tasks",)
    assert {trace.name for trace in figure.data} == {"solve (outside)", "load (outside)"}


def test_a_figure_tells_how_many_spans_are_not_drawn():
    figure = timeline_figure(values.timeline(notes=[], notes_on_spans=["3 spans are not drawn."]))
    assert "3 spans are not drawn." in figure.to_json()


def test_a_bar_says_its_arguments_and_when_it_began_by_the_clock():
    bars = msgspec.structs.replace(values.timeline().bars, args=["seed=1", "", "name=<b>"])
    simulate, collect, _ = timeline_figure(values.timeline(bars=bars)).data
    assert (
        simulate.customdata[0]
        == "<b>simulate</b> completed<br>seed=1<br>40.0s from 0:00 (03:52:00 UTC)<br>on w-1<br>t1"
    )
    assert "<br>name=&lt;b&gt;<br>30.0s from 0:50 (03:52:50 UTC)<br>" in collect.customdata[0]


def test_what_did_not_complete_is_faint_inside_and_its_outline_has_all_of_its_colour():
    simulate, *_ = timeline_figure(values.timeline()).data
    assert simulate.marker.color == (PALETTE[0], "rgba(0,114,178,0.25)")
    assert (simulate.marker.line.color, simulate.marker.line.width) == ((EDGE, PALETTE[0]), (0.8, 1.5))


def test_neighbours_of_one_colour_have_an_edge_between_them_where_they_are_wide_enough():
    side_by_side = Bars(
        lane=[0, 0, 0],
        start_s=[0.0, 10.0, 20.0],
        length_s=[10.0, 10.0, 0.01],
        name=[0, 0, 0],
        state=["completed"] * 3,
        task_id=["t1", "t2", "t3"],
        attempt=[1, 1, 1],
    )
    simulate, *_ = timeline_figure(values.timeline(bars=side_by_side)).data
    assert (simulate.marker.color, simulate.marker.line.color) == (PALETTE[0], EDGE)
    assert list(simulate.marker.line.width) == [0.8, 0.8, 0]  # an edge would hide the last


def test_an_axis_of_time_says_when_the_run_began():
    for figure in (timeline_figure(values.timeline()), lines.chart_figure(values.chart())):
        assert figure.layout.xaxis.title.text == "time since 2026-05-20 03:52:00 UTC, seconds"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5.0, "03:52:05 UTC"),
        (86_400.0, "2026-05-21 03:52:00 UTC"),
        (-60.0, "2026-05-20 03:51:00 UTC"),
        (1e15, ""),
    ],
)
def test_a_moment_is_told_by_the_clock_and_with_its_day_where_that_is_another_one(seconds: float, text: str):
    assert day_text(values.SINCE, seconds) == text


def test_the_first_lane_is_at_the_top_and_lanes_of_one_name_stay_apart():
    figure = timeline_figure(values.timeline(lanes=values.lanes("w", "w")))
    assert list(figure.layout.yaxis.categoryarray) == ["w", "w ·2"]
    assert list(figure.layout.yaxis.range) == [1.5, -0.5]
    assert [list(trace.y) for trace in figure.data] == [["w", "w ·2"], ["w"], ["w ·2"]]


def test_a_mark_on_no_lane_is_left_out_and_each_kind_has_its_own_shape():
    def mark(lane: int, kind: str) -> TimelineMark:
        return TimelineMark(lane=lane, at_s=1.0, kind=kind, task="t", task_id=None, text="")

    kinds = ["failed", "retried", "cancelled", "lost"]
    figure = timeline_figure(
        values.timeline(marks=[mark(0, kind) for kind in kinds] + [mark(9, "failed"), mark(-1, "lost")])
    )
    drawn = {
        trace.name: (trace.marker.symbol, len(trace.x)) for trace in figure.data if trace.type == "scatter"
    }
    assert drawn == {
        "failed": ("x", 1),
        "retried": ("circle-open-dot", 1),
        "cancelled": ("square-open", 1),
        "worker lost": ("diamond", 1),
    }


def test_a_dense_timeline_is_one_picture_of_names_and_shades_and_says_so():
    figure = timeline_figure(values.dense())
    heat, *legend = figure.data
    assert [list(row) for row in heat.z] == [
        [4, 7],
        [10, 10],
    ]  # five shades a name: full, half, and hardly any
    assert [[list(cell) for cell in row] for row in heat.customdata] == [
        [[100, 100], [20, 50]],
        [[7, 0], [7, 0]],
    ]
    assert list(heat.x) == [0.0, 50.0, 100.0]
    assert [trace.name for trace in legend] == ["simulate", "collect", "all others", "failed"]
    assert figure.layout.annotations[0].text == "<i>127 tasks are drawn by how busy</i>"


def test_the_worst_dense_timeline_stays_small():
    lanes, columns = 64, 400
    cells = Cells(
        lane=[n // columns for n in range(lanes * columns)],
        start_s=[float(n % columns) for n in range(lanes * columns)],
        length_s=[1.0] * (lanes * columns),
        name=[n % 12 for n in range(lanes * columns)],
        attempts=[1234] * (lanes * columns),
        busy=[0.123456] * (lanes * columns),
    )
    dense = values.timeline(
        bars=None,
        cells=cells,
        length_s=400.0,
        names=[f"n{n}" for n in range(12)],
        lanes=values.lanes(*map(str, range(lanes))),
    )
    assert len(style.figure_json(timeline_figure(dense))) < 400_000


def test_two_timelines_side_by_side_share_colours_and_length():
    colors = {"simulate": "#0072b2", "collect": "#dd7700"}
    other = timeline_figure(values.timeline(names=["collect", "simulate"]), colors=colors, length_s=7200.0)
    collect, simulate = (trace.marker.color for trace in other.data[:2])
    assert (collect[0], simulate) == ("#dd7700", "#0072b2")
    assert other.layout.xaxis.range[1] == pytest.approx(2 * 1.005)
    assert other.layout.xaxis.ticksuffix == " h"


def test_a_chart_breaks_where_nothing_is_known_and_is_in_a_unit_with_few_digits():
    [line] = lines.chart_figure(values.chart()).data
    assert list(line.y) == [1.0, None, 10.0, 2.0]
    assert lines.chart_figure(values.chart()).layout.yaxis.ticksuffix == " GiB"
    assert not line.connectgaps


def test_a_limit_is_drawn_where_it_is_near_and_told_where_it_is_far():
    def limited(limit: float) -> tuple[list[str], list[str]]:
        series = ChartSeries(label="w-1", at_s=[0.0, 1.0], value=[1.0, 2.0**30], limit=limit)
        figure = lines.chart_figure(values.chart(series=[series]))
        return [trace.name for trace in figure.data], [note.text for note in figure.layout.annotations]

    assert limited(2.0**31) == (["w-1", "limit: 2.0 GiB"], [])
    far = values.chart(series=[ChartSeries(label="w-1", at_s=[0.0], value=[1.0], limit=2.0**40)])
    assert lines.limit_note(far) == "The limit is 1.0 TiB, above what is drawn."
    assert lines.chart_figure(far, notes=False).layout.annotations == ()
    assert lines.limit_note(values.chart()) is None
    assert limited(2.0**40) == (["w-1"], ["<i>The limit is 1.0 TiB, above what is drawn.</i>"])


def test_a_curve_breaks_where_a_value_is_no_number_and_marks_the_place():
    line, lost = lines.curve_figure(values.curve(), length_s=100.0).data
    assert (line.x, line.y, line.connectgaps) == ((0.0, 1.0, 2.0, 3.0), (4.0, 2.0, None, 1.0), False)
    assert (lost.x, lost.marker.symbol, lost.name) == ((2.0,), "x", "NaN or infinite")


def test_steps_of_tens_of_thousands_are_written_out():
    axis = lines.curve_figure(values.curve(), length_s=100.0).layout.xaxis
    assert (axis.title.text, axis.separatethousands, axis.minexponent) == ("step", True, 7)


def test_where_points_are_of_several_values_a_band_goes_from_least_to_most():
    curve = values.curve(least=[3.0, 1.0, None, 1.0], most=[5.0, 3.0, None, 1.0], lost_at=[], values=90)
    band, line = lines.curve_figure(curve, length_s=100.0).data
    assert (band.x, band.y) == ((0.0, 1.0, 1.0, 0.0, None), (3.0, 1.0, 3.0, 5.0, None))
    assert (band.fill, band.showlegend, line.y) == ("toself", False, (4.0, 2.0, None, 1.0))


def test_values_that_no_browser_draws_at_their_height_are_drawn_lower_and_that_is_said():
    curve = values.curve(value=[1e308, -1e308, 1.0, None], lost_at=[], lost=0)
    figure = lines.curve_figure(curve, length_s=1.0)
    assert figure.data[0].y == (1e300, -1e300, 1.0, None)
    assert [note.text for note in figure.layout.annotations] == [
        "<i>Values beyond 1e+300 are drawn as that.</i>"
    ]
    low, high = figure.layout.yaxis.range
    assert low < -1e300 < 1e300 < high < 1e301


def test_values_over_many_powers_are_drawn_by_powers_and_the_axis_says_so():
    axis = lines.curve_figure(
        values.curve(value=[1.0, 1e-3, 1e-4, 1e-5], lost_at=[]), length_s=1.0
    ).layout.yaxis
    assert (axis.type, axis.title.text) == ("log", "logarithmic")
    assert axis.ticktext == ("1e-05", "0.0001", "0.001", "0.01", "0.1", "1")
    assert (
        lines.curve_figure(values.curve(value=[1.0, 0.0, 1e-4, 1e-5]), length_s=1.0).layout.yaxis.type is None
    )


def test_the_outline_of_durations_is_their_histogram():
    shape, *points = rows.durations_figure([values.spread()]).data
    assert list(shape.x) == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0]
    assert list(shape.y) == pytest.approx([0, -0.8 / 3, -0.8 / 3, -0.8, -0.8, -0.8 / 3, -0.8 / 3, 0])
    assert [(trace.name, list(trace.x)) for trace in points] == [
        ("median", [3.0]),
        ("p95", [7.0]),
        ("longest", [8.0]),
    ]


@pytest.mark.parametrize("seconds", [4.0, 0.007, 40.0, 1e6])
def test_an_axis_of_durations_has_a_tick_that_is_seen_though_all_took_the_same_time(seconds):
    same = {f"{name}_s": seconds for name in ("least", "p25", "median", "p75", "p95", "most")}
    axis = rows.durations_figure([values.spread(**same)]).layout.xaxis
    low, high = axis.range
    assert axis.tickvals
    assert "task" not in axis.title.text  # they may be spans
    assert all(low <= math.log10(tick) <= high for tick in axis.tickvals)


def test_tasks_that_never_waited_have_a_place_called_none():
    figure = lines.waits_figure(values.waits())
    assert list(figure.data[0].y) == [0.5, 1.0]
    assert list(figure.data[1].y) == [20.0]
    assert figure.layout.yaxis.ticktext[0] == "none"
    assert list(lines.waits_figure(values.waits_grid()).data[0].y) == pytest.approx([0.01, 0.1, 1.0])


def test_the_critical_path_is_told_by_its_longest_parts_and_the_rest_in_one():
    [bars] = rows.critical_figure(values.critical(15)).data
    assert len(bars.y) == 13
    assert bars.y[-1] == "3 shorter parts"
    assert sum(bars.x) == pytest.approx(80 + sum(20 - n for n in range(14)))


def test_an_icicle_holds_what_is_inside_and_its_parts_never_exceed_the_whole():
    [tree] = rows.spans_figure(values.spans()).data
    found = {
        id_: (label, parent, value)
        for id_, label, parent, value in zip(tree.ids, tree.labels, tree.parents, tree.values, strict=True)
    }
    assert [found[id_][0] for id_ in tree.ids] == [
        "all spans",
        "in task simulate",
        "main",
        "step",
        "load",
        "solve",
    ]
    assert found["0"][2] == 40.0
    for id_, (_, _, value) in found.items():
        assert sum(inside for _, parent, inside in found.values() if parent == id_) <= value * (1 + 1e-12)


def test_the_steps_of_a_comparison_lead_from_the_time_before_to_the_time_after():
    [bars] = rows.comparison_figure(values.comparison()).data
    assert list(bars.y) == ["A, before", "duration of tasks", "cache", "not explained", "B, after"]
    scale = 100.0 / bars.x[0]
    assert [base * scale for base in bars.base] == pytest.approx([0.0, 100.0, 128.0, 128.0, 0.0])
    assert [length * scale for length in bars.x] == pytest.approx([100.0, 40.0, 12.0, 2.0, 130.0])
    assert list(bars.text) == ["1m 40s", "+40.0s", "-12.0s", "+2.0s", "2m 10s"]


def test_shares_of_every_row_add_up_to_all_of_it():
    figure = rows.shares_figure(values.shares())
    assert [sum(trace.x[row] for trace in figure.data) for row in range(3)] == pytest.approx([100.0] * 3)
    assert list(figure.layout.yaxis.categoryarray) == ["all 2 workers", "w-1", "w-2"]


def test_a_trend_has_a_point_a_run_and_a_mark_a_step():
    band, levels, points, steps = lines.trends_figure(values.trend(20)).data
    assert list(points.x) == list(range(20))
    assert list(steps.x) == [10]
    assert "commit: a → b" in steps.customdata[0]
    assert len(levels.x) == 6
    assert len(band.x) == 12


def test_a_share_that_is_nearly_nothing_is_no_tag():
    shares = msgspec.structs.replace(
        values.trend(2), unit="share", points=[msgspec.structs.replace(values.trend(2).points[0], value=1e-6)]
    )
    points = next(trace for trace in lines.trends_figure(shares).data if trace.name == "runs")
    assert points.customdata[0].startswith("<b>&lt;0.1%</b><br>run-0")


def test_levels_of_few_runs_have_no_band_of_nine_in_ten():
    drawn = lines.trends_figure(values.trend(18)).data
    assert [trace.name for trace in drawn] == ["typical of a level", "runs", "steps"]


@pytest.mark.parametrize("color", [*PALETTE, OTHER, BAD, WARN, GOOD, QUIET])
def test_every_colour_stands_out_on_light_and_on_dark(color: str):
    assert values.contrast(color, "#ffffff") >= 3
    assert values.contrast(color, "#111111") >= 3


@pytest.mark.parametrize("theme", [(LIGHT, "#ffffff"), (DARK, "#111111")])
def test_texts_of_both_themes_are_easy_to_read(theme: tuple[dict[str, str], str]):
    assert values.contrast(theme[0]["font.color"], theme[1]) >= 7


@pytest.mark.parametrize("without", values.SEEN_WITHOUT)
def test_the_first_eight_colours_can_be_told_apart_by_everyone(without: str):
    assert min(values.apart(one, other, without) for one, other in combinations(PALETTE[:8], 2)) > 20


@pytest.mark.parametrize("color", [*PALETTE, OTHER, "#000000", "#ffffff", "#767676"])
def test_a_text_on_any_colour_is_easy_to_read(color: str):
    assert values.contrast(ink_on(color), color) >= 4.5


def test_the_texts_of_an_icicle_are_easy_to_read_on_their_boxes():
    [icicle] = rows.spans_figure(values.spans()).data
    pairs = zip(icicle.textfont.color, icicle.marker.colors, strict=True)
    assert all(values.contrast(ink, box) >= 4.5 for ink, box in pairs)


def test_a_name_has_its_colour_by_its_place_and_they_begin_again():
    names = [f"n{n}" for n in range(len(PALETTE) + 1)]
    colors = colors_of([*names, "n0"])
    assert list(colors) == names
    assert colors["n0"] == colors[names[-1]] == PALETTE[0]


def test_a_theme_changes_the_layout_and_nothing_else():
    figure = timeline_figure(values.timeline())
    data = figure.to_dict()["data"]
    dark = style.with_theme(figure, "dark").to_dict()
    assert dark["data"] == data
    assert dark["layout"]["font"]["color"] == DARK["font.color"]
    assert dark["layout"]["xaxis"]["gridcolor"] == DARK["xaxis.gridcolor"]


def test_the_json_of_a_figure_is_safe_in_a_page_short_and_valid():
    series = ChartSeries(label="</script>&", at_s=[0.0, 1 / 3], value=[1.0, 2.0])
    text = style.figure_json(lines.chart_figure(values.chart("count", series=[series])))
    assert set("<>&").isdisjoint(text)
    found = json.loads(text)
    assert found["data"][0]["name"] == "&lt;/script&gt;&amp;"
    assert found["data"][0]["x"] == [0, 0.3333333]
    assert set(found) == {"data", "layout"}


def test_ticks_of_durations_are_round_and_few():
    assert duration_ticks(0.9, 70.0)[1] == ["1 s", "2 s", "5 s", "10 s", "20 s", "30 s", "1 min"]
    assert duration_ticks(1e-3, 90_000.0)[1] == [
        "1 ms",
        "10 ms",
        "100 ms",
        "1 s",
        "10 s",
        "1 min",
        "10 min",
        "1 h",
        "10 h",
        "1 d",
    ]
    assert duration_ticks(3.1, 3.2)[1] == ["2 s"]


@pytest.mark.parametrize(
    ("length_s", "words"),
    [
        (0.0, "seconds"),
        (5e-4, "microseconds"),
        (0.5, "milliseconds"),
        (5.0, "seconds"),
        (119.0, "seconds"),
        (600.0, "minutes"),
        (7200.0, "hours"),
        (3 * 86400.0, "days"),
        (1e300, "days"),
    ],
)
def test_time_is_told_in_a_unit_that_fits(length_s: float, words: str):
    assert time_scale(length_s).words == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0:00"),
        (5.25, "0:05.250"),
        (65.0, "1:05"),
        (3723.4, "1:02:03"),
        (-5.0, "-0:05"),
        (1e300, "3.17e+292 years"),
    ],
)
def test_moments_read_as_on_a_clock(seconds: float, text: str):
    assert clock_text(seconds) == text


def test_a_duration_that_no_clock_can_have_is_short_to_read():
    assert duration_text(1e300) == "3.17e+292 years"
    assert duration_text(4.2) == "4.2s"
    assert duration_text(None) == "unknown"


def test_a_value_between_two_gaps_is_a_dot():
    line = values.chart(
        "count",
        series=[
            ChartSeries(label="w", at_s=[0.0, 1.0, 2.0, 3.0, 4.0], value=[5.0, None, 1.0, 2.0, math.nan])
        ],
    )
    [trace] = lines.chart_figure(line).data
    assert (trace.mode, list(trace.marker.size)) == ("lines+markers", [7, 0, 0, 0, 0])


def test_no_other_tick_lies_over_the_one_for_tasks_that_did_not_wait():
    axis = lines.waits_figure(values.waits(queue_s=[0.0, 1.0, 20.0])).layout.yaxis
    assert list(axis.ticktext) == ["none", "1 s", "2 s", "5 s", "10 s", "20 s"]
