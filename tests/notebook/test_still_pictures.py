"""A figure's display has a picture beside Plotly's data, for where no script runs."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from base64 import b64decode

import plotly.graph_objects as go
import plotly.io as pio
import pytest
from builders.hostile_run import hostile_run
from builders.runs import at, make_run

from flightlog import figures
from flightlog.events import TaskCompleted, TaskStarted, WorkerReady
from flightlog.notebook.limits import NotebookLimits
from flightlog.notebook.plotly_figure import DisplayedFigure, still_of, words_of

PLOTLY, PNG = "application/vnd.plotly.v1+json", b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def as_a_kernel_has_it(monkeypatch):
    monkeypatch.setattr(pio.renderers, "_default_name", "plotly_mimetype")


def lives(number: int):
    yield WorkerReady(timestamp=at(0), worker="w1", host="node-1", pid=7)
    for n in range(number):
        ids = {"task": f"task-{n % 40}", "task_id": f"t{n}", "span_id": f"s{n}", "worker": f"w{n % 8}"}
        yield TaskStarted(timestamp=at(n * 0.01), queue_s=0.1, **ids)
        yield TaskCompleted(
            timestamp=at(n * 0.01 + 0.01), duration_s=0.01, queue_s=0.1, args={"seed": n}, **ids
        )


def bundle_of(figure) -> dict:
    return figure._repr_mimebundle_()


def test_a_figure_of_a_run_brings_data_a_picture_and_a_line(tmp_path):
    bundle = bundle_of(figures.concurrency(make_run(tmp_path, lives(20))))
    assert list(bundle) == [PLOTLY, "text/plain", "image/png"]
    assert b64decode(bundle["image/png"]).startswith(PNG)
    assert bundle["text/plain"].startswith("Plotly figure of Concurrency, ")
    assert bundle[PLOTLY]["data"]
    assert bundle[PLOTLY]["config"]["displaylogo"] is False


def test_what_is_changed_in_a_figure_is_changed_in_its_picture(tmp_path):
    figure = figures.timeline(make_run(tmp_path, lives(20)))
    before = bundle_of(figure)["image/png"]
    figure.update_xaxes(range=[0, 0.05])
    assert bundle_of(figure)["image/png"] != before


def test_what_cannot_be_drawn_as_a_picture_is_shown_by_plotly_alone(tmp_path):
    figure = figures.timeline(make_run(tmp_path, lives(20)))
    figure.add_trace(go.Pie(values=[1, 2]))
    assert list(bundle_of(figure)) == [PLOTLY, "text/plain"]


def test_a_renderer_that_is_asked_for_is_left_as_it_is(tmp_path, monkeypatch):
    figure = figures.timeline(make_run(tmp_path, lives(20)))
    monkeypatch.setattr(pio.renderers, "_default_name", "json")
    assert list(bundle_of(figure)) == ["application/json", "text/plain", "image/png"]
    monkeypatch.setattr(pio.renderers, "_default_name", "browser")
    assert bundle_of(figure) == {}


def test_copies_of_a_figure_keep_their_picture(tmp_path):
    figure = figures.timeline(make_run(tmp_path, lives(20)))
    for other in (copy.deepcopy(figure), pickle.loads(pickle.dumps(figure)), DisplayedFigure(figure)):
        assert type(other) is DisplayedFigure
        assert other.to_json() == figure.to_json()


def test_the_display_of_many_tasks_stays_small(tmp_path):
    path = make_run(tmp_path, lives(20_000))
    for draw in (figures.timeline, figures.durations, figures.concurrency):
        bundle = bundle_of(draw(path))
        assert len(b64decode(bundle["image/png"])) <= NotebookLimits.max_picture_bytes
        assert len(json.dumps(bundle)) <= 1_500_000


def test_a_hostile_name_is_a_text_in_the_line(tmp_path):
    figure = figures.timeline(hostile_run(tmp_path / "runs", name_bytes=10_000))
    assert (still_of(figure) or b"").startswith(PNG)
    figure.update_layout(title={"text": "\x1b[31m&lt;b&gt;<br>second" + "x" * 1000})
    assert words_of(figure) == ("Plotly figure of \\x1b[31m<b>, which a browser draws: .write_html(FILE)")


def test_without_matplotlib_a_figure_is_shown_by_plotly_alone(tmp_path):
    path = make_run(tmp_path, lives(5))
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import plotly.io as pio; pio.renderers._default_name = 'plotly_mimetype'\n"
        "from flightlog import figures\n"
        f"print(list(figures.timeline({str(path)!r})._repr_mimebundle_()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([PLOTLY, "text/plain"])
