"""A job's two files: shaped as ModelOps', whole whoever saves, and never in the way of the job."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flightlog.compat.modelops import (
    TelemetryCollector,
    TelemetrySpan,
    TelemetryStorage,
    find_spans,
    list_jobs,
    slowest_spans,
)
from flightlog.export.limits import ExportLimits
from flightlog.export.modelops import ModelOpsSummary, job_folder, job_name


class Provenance:
    """A provenance store that uploads: what it is asked is kept."""

    def __init__(self, backend=True, act=None):
        self._azure_backend, self._act = backend, act
        self.asked = []

    def _upload_to_azure(self, folder, prefix):
        self.asked.append((folder, prefix))
        if self._act:
            self._act()


def collected(*names):
    collector = TelemetryCollector()
    for name in names:
        with collector.span(name):
            pass
    return collector


def read(folder):
    lines = [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]
    return json.loads((folder / "summary.json").read_text()), lines


def test_saved_jobs_and_their_spans_are_found(tmp_path):
    storage = TelemetryStorage(tmp_path)
    for number, job in enumerate(["job-1", "a/b"]):
        spans = [TelemetrySpan("sim", 0.0, 1.0 + number, {}, {"i": number}), TelemetrySpan("load", 0.0, 9.0)]
        storage.save_job_telemetry(job, collector_of(spans), job_type=f"type {number}")
    assert [job["job_id"] for job in list_jobs(tmp_path)] == ["a/b", "job-1"]
    assert [job["job_id"] for job in list_jobs(tmp_path, job_type="type 0")] == ["job-1"]
    found = find_spans(tmp_path, name="sim", tags={"i": 1})
    assert [(span["job_id"], span["duration"]) for span in found] == [("a/b", 2.0)]
    assert [span["name"] for span in find_spans(tmp_path, job_id="job-1", min_duration=5.0)] == ["load"]
    assert [span["duration"] for span in slowest_spans(tmp_path, 1, name="sim")] == [2.0]
    assert list_jobs(tmp_path / "nothing") == []


def collector_of(spans):
    collector = TelemetryCollector()
    collector.spans += spans
    return collector


def test_a_share_of_jobs_is_saved_and_always_the_same(tmp_path):
    def saved(share):
        storage = TelemetryStorage(tmp_path / str(share), share_of_jobs=share)
        for number in range(400):
            storage.save_job_telemetry(f"job-{number}", TelemetryCollector())
        return {job["job_id"] for job in list_jobs(tmp_path / str(share))}

    few, half = saved(0.1), saved(0.5)
    assert 10 < len(few) < 80
    assert 150 < len(half) < 250
    assert few < half
    assert (len(saved(0.0)), len(saved(1.0))) == (0, 400)


def test_uploads_can_be_switched_off(tmp_path):
    store = Provenance()
    TelemetryStorage(tmp_path, store, upload_to_azure=False).save_job_telemetry("job", collected("a"))
    assert store.asked == []


def test_a_job_is_saved_as_a_summary_and_a_line_a_span(tmp_path):
    collector = TelemetryCollector()
    with collector.span("calibration.job", job_id="j"):
        for i in range(4):
            with collector.span("provenance.lookup", i=str(i)):
                collector.add_metric("cache_hit", i % 2)
    TelemetryStorage(tmp_path).save_job_telemetry("job-1", collector, job_type="calibration")
    summary, lines = read(tmp_path / "telemetry" / "jobs" / "job-1")
    assert lines == collector.to_dict()["spans"]
    by_name = summary.pop("by_name")
    whole, lookups = lines[-1]["duration"], [line["duration"] for line in lines[:-1]]
    assert summary == {
        "job_id": "job-1",
        "job_type": "calibration",
        "total_spans": 5,
        "open_spans": 0,
        "total_duration": whole,
        "summed_duration": pytest.approx(whole + sum(lookups)),
    }
    assert by_name["provenance.lookup"] == {
        "count": 4,
        "errors": 0,
        "total_duration": pytest.approx(sum(lookups)),
        "mean_duration": pytest.approx(sum(lookups) / 4),
        "max_duration": max(lookups),
        "min_duration": min(lookups),
        "metrics": {"cache_hit": {"mean": 0.5, "sum": 2.0, "count": 4}},
    }
    assert "metrics" not in by_name["calibration.job"]


def test_the_snippets_of_the_design_run_on_the_files(tmp_path):
    collector = TelemetryCollector()
    for i in range(3):
        with collector.span("simulation.run_remote", param_id=f"p{i}"):
            pass
    TelemetryStorage(tmp_path).save_job_telemetry("job-abc123", collector)
    folder = tmp_path / "telemetry/jobs/job-abc123"
    frame = pd.read_json(folder / "spans.jsonl", lines=True)
    slowest = frame[frame["name"] == "simulation.run_remote"].nlargest(10, "duration")
    assert list(slowest["tags"].iloc[0]) == ["param_id"]
    assert frame.groupby("name")["duration"].describe()["count"].to_dict() == {"simulation.run_remote": 3}
    assert list(frame["start_time"] + frame["duration"]) == pytest.approx(list(frame["end_time"]), abs=1e-6)
    assert str(frame["started_at"].dtype).startswith("datetime64")
    summary = json.loads((folder / "summary.json").read_text())
    assert f"{summary['by_name']['simulation.run_remote']['mean_duration']:.2f}s" == "0.00s"


def test_a_job_without_spans_has_both_files(tmp_path):
    storage = TelemetryStorage(tmp_path)
    storage.save_job_telemetry("job-1", TelemetryCollector())
    assert storage.load_spans("job-1") == []
    assert storage.load_summary("job-1") == {
        "job_id": "job-1",
        "job_type": "simulation",
        "total_spans": 0,
        "open_spans": 0,
        "total_duration": 0,
        "summed_duration": 0,
        "by_name": {},
    }
    assert (storage.load_summary("another"), storage.load_spans("another")) == (None, [])


def test_a_job_that_is_saved_while_it_runs_has_its_open_spans(tmp_path):
    collector, storage = TelemetryCollector(), TelemetryStorage(tmp_path)
    with collector.span("job"), collector.span("hangs", seed=3):
        storage.save_job_telemetry("job-1", collector)
    assert [(line["name"], line["duration"]) for line in storage.load_spans("job-1")] == [
        ("job", None),
        ("hangs", None),
    ]
    summary = storage.load_summary("job-1")
    assert (summary["total_spans"], summary["open_spans"], summary["total_duration"]) == (2, 2, 0)
    assert summary["by_name"]["hangs"]["mean_duration"] is None


def test_no_value_costs_the_file(tmp_path):
    collector, storage = TelemetryCollector(), TelemetryStorage(tmp_path)
    with collector.span("odd", path=Path("a/b"), self=object()) as span:
        span.metrics.update(loss=math.nan, big=10**400, name="text", good=2)
    storage.save_job_telemetry("job-1", collector)
    (line,) = storage.load_spans("job-1")
    assert (line["tags"]["path"], line["metrics"]["loss"], line["nonfinite"]) == (
        "a/b",
        None,
        {"loss": "nan"},
    )
    assert storage.load_summary("job-1")["by_name"]["odd"]["metrics"]["good"] == {
        "mean": 2.0,
        "sum": 2.0,
        "count": 1,
    }
    assert "loss" not in storage.load_summary("job-1")["by_name"]["odd"]["metrics"]


def test_failed_spans_are_counted(tmp_path):
    collector, storage = TelemetryCollector(), TelemetryStorage(tmp_path)
    for i in range(3):
        try:
            with collector.span("run"):
                1 / i
        except ZeroDivisionError:
            pass
    storage.save_job_telemetry("job-1", collector)
    by_name = storage.load_summary("job-1")["by_name"]["run"]
    assert (by_name["count"], by_name["errors"]) == (3, 1)


@pytest.mark.parametrize(
    "job_id", ["../../etc/passwd", "/absolute", "a/b", "..", ".", "", "ä\0\ud800", "x" * 5000]
)
def test_no_job_id_leads_out_of_the_folder(tmp_path, job_id):
    storage = TelemetryStorage(tmp_path / "storage")
    storage.save_job_telemetry(job_id, collected("work"))
    (folder,) = (tmp_path / "storage/telemetry/jobs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["spans.jsonl", "summary.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["storage"]
    assert [line["name"] for line in storage.load_spans(job_id)] == ["work"]


@given(st.text(), st.text())
def test_each_job_id_has_a_folder_of_its_own(one, other):
    name = job_name(one)
    assert 0 < len(name.encode()) <= ExportLimits.max_job_name_bytes
    assert "/" not in name
    assert name not in {".", ".."}
    assert (name == job_name(other)) == (one == other)


def test_plain_job_ids_are_the_names_of_their_folders():
    assert job_folder(Path("root"), "job-abc_1.2") == Path("root/telemetry/jobs/job-abc_1.2")


def test_saves_at_once_leave_two_whole_files_of_one_save(tmp_path, caplog):
    storage = TelemetryStorage(tmp_path)
    jobs = [collected(*[f"save-{i}"] * (i + 1)) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: storage.save_job_telemetry("job-1", job), jobs))
    summary, lines = read(tmp_path / "telemetry/jobs/job-1")
    assert summary["total_spans"] == len(lines)
    assert set(summary["by_name"]) == {line["name"] for line in lines}
    assert [path.name for path in sorted((tmp_path / "telemetry/jobs/job-1").iterdir())] == [
        "spans.jsonl",
        "summary.json",
    ]
    assert caplog.text == ""


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "telemetry").write_text("in the way")
    TelemetryStorage(tmp_path).save_job_telemetry("job-1", collected("work"))
    assert "Failed to save telemetry for job-1" in caplog.text


def test_a_provenance_store_with_a_backend_gets_the_folder(tmp_path):
    store = Provenance()
    TelemetryStorage(tmp_path, prov_store=store).save_job_telemetry("a/b", collected("work"))
    assert store.asked == [(tmp_path / "telemetry/jobs/a%2Fb", "telemetry/jobs/a%2Fb")]


@pytest.mark.parametrize("store", [None, object(), Provenance(backend=None)])
def test_nothing_is_uploaded_without_a_backend(tmp_path, store):
    storage = TelemetryStorage(tmp_path, prov_store=store)
    storage.save_job_telemetry("job-1", collected("work"))
    assert storage.load_summary("job-1")["total_spans"] == 1
    assert getattr(store, "asked", []) == []


class PublicStore:
    """A provenance store as newer versions of ModelOps have it."""

    def __init__(self, supported=True):
        self.supported, self.asked = supported, []

    def supports_remote_uploads(self):
        return self.supported

    def upload_directory(self, folder, prefix):
        self.asked.append((folder, prefix))


@pytest.mark.parametrize("supported", [True, False])
def test_a_store_with_the_public_interface_gets_the_folder_where_it_supports_uploads(tmp_path, supported):
    store = PublicStore(supported)
    TelemetryStorage(tmp_path, prov_store=store).save_job_telemetry("job-1", collected("work"))
    assert store.asked == [(tmp_path / "telemetry/jobs/job-1", "telemetry/jobs/job-1")] * supported


UPLOADING = """
import sys, time
from pathlib import Path
from flightlog.compat.modelops.telemetry import TelemetryCollector, TelemetryStorage

class Store:
    def supports_remote_uploads(self):
        return True
    def upload_directory(self, folder, prefix):
        time.sleep(0.5)
        Path(sys.argv[1], "uploaded").write_text(prefix)

TelemetryStorage(sys.argv[1], Store(), upload_wait_s=0.01).save_job_telemetry("job-1", TelemetryCollector())
"""


def test_an_upload_that_is_longer_than_its_job_ends_before_the_program(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", UPLOADING, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (tmp_path / "uploaded").read_text() == "telemetry/jobs/job-1"
    assert "The program waits for the upload of telemetry/jobs/job-1" in done.stderr


class Other:
    """A collector of somebody else's: a dataclass per span, and nothing of ours."""

    @dataclass
    class Span:
        name: str
        start_time: float
        end_time: float | None
        metrics: dict
        tags: dict

    def __init__(self):
        self.spans = [self.Span("a", 1.0, 3.0, {"n": 2.0}, {"error": "E"}), self.Span("b", 2.0, None, {}, {})]


def test_the_spans_of_another_collector_are_saved(tmp_path):
    storage = TelemetryStorage(tmp_path)
    storage.save_job_telemetry("job-1", Other())
    summary = storage.load_summary("job-1")
    assert (summary["total_spans"], summary["open_spans"], summary["total_duration"]) == (2, 1, 2.0)
    assert (summary["by_name"]["a"]["errors"], summary["by_name"]["a"]["metrics"]["n"]["sum"]) == (1, 2.0)
    assert [(line["name"], line["duration"]) for line in storage.load_spans("job-1")] == [
        ("a", 2.0),
        ("b", None),
    ]


def test_an_upload_that_fails_is_told_and_the_files_stay(tmp_path, caplog):
    caplog.set_level("INFO")

    def fail():
        raise OSError("no route to host")

    storage = TelemetryStorage(tmp_path, prov_store=Provenance(act=fail))
    storage.save_job_telemetry("job-1", collected("work"))
    assert "Failed to upload telemetry to telemetry/jobs/job-1: no route to host" in caplog.text
    assert "Handed" not in caplog.text
    assert storage.load_summary("job-1")["total_spans"] == 1


def test_an_upload_that_hangs_does_not_hold_the_job_up(tmp_path, caplog):
    release = threading.Event()
    storage = TelemetryStorage(tmp_path, prov_store=Provenance(act=release.wait), upload_wait_s=0.01)
    storage.save_job_telemetry("job-1", collected("work"))
    assert "goes on in the background" in caplog.text
    release.set()


def test_a_summary_takes_spans_in_any_order_and_counts_time_once():
    summary = ModelOpsSummary("calibration")
    summary.add("b", 5_000_000_000, 7_000_000_000, {"n": [1, 2]})
    summary.add("a", 0, 6_000_000_000, {"n": 3}, failed=True)
    summary.add("b", 9_000_000_000, None)
    assert summary.to_dict() == {
        "job_type": "calibration",
        "total_spans": 3,
        "open_spans": 1,
        "total_duration": 7.0,
        "summed_duration": 8.0,
        "by_name": {
            "b": {
                "count": 2,
                "errors": 0,
                "total_duration": 2.0,
                "mean_duration": 2.0,
                "max_duration": 2.0,
                "min_duration": 2.0,
                "metrics": {"n": {"mean": 1.5, "sum": 3, "count": 2}},
            },
            "a": {
                "count": 1,
                "errors": 1,
                "total_duration": 6.0,
                "mean_duration": 6.0,
                "max_duration": 6.0,
                "min_duration": 6.0,
                "metrics": {"n": {"mean": 3, "sum": 3, "count": 1}},
            },
        },
    }


def test_a_span_that_makes_no_sense_does_not_cost_the_others(tmp_path, caplog):
    collector = collected("good")
    for name, times in {"nan": (math.nan, 1.0), "text": ("now", None), "endless": (1.0, math.inf)}.items():
        collector.spans.append(TelemetrySpan(name, *times))
    with collector.span("replaced") as span:
        span.metrics, span.tags = None, [1]
    collector.spans.append(object())
    storage = TelemetryStorage(tmp_path)
    storage.save_job_telemetry("j", collector)
    assert [(line["name"], line["metrics"], line["tags"]) for line in storage.load_spans("j")] == [
        ("good", {}, {}),
        ("nan", {}, {}),
        ("text", {}, {}),
        ("endless", {}, {}),
        ("replaced", {}, {"tags": [1]}),
    ]
    assert storage.load_summary("j")["open_spans"] == 3
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "Left a span out of the telemetry of j"
    ]
    collector.spans.pop()
    assert collector.to_dict()["total_spans"] == 5


def test_a_torn_line_is_told_and_the_others_are_read(tmp_path, caplog):
    storage = TelemetryStorage(tmp_path)
    storage.save_job_telemetry("j", collected("a", "b"))
    file = job_folder(tmp_path, "j") / "spans.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    assert [line["name"] for line in storage.load_spans("j")] == ["a"]
    assert [message.partition(" ")[0] for message in caplog.messages] == [f"{file}:2"]
