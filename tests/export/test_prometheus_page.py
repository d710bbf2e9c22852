"""The page that Prometheus scrapes: valid, bounded, and never an error because of one run."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from builders.event_samples import a_bit_of_everything
from builders.runs import at, make_run
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import flightlog
from flightlog.core.errors import UsageError
from flightlog.events import Event, TaskCompleted, TaskSubmitted
from flightlog.export.base import ExportOptions
from flightlog.export.limits import PrometheusLimits
from flightlog.export.prometheus.run_metrics import RunWatch
from flightlog.export.prometheus.server import Choice, MetricsPage, MetricsServer, RunsCollector, choose
from flightlog.export.prometheus.textfile import TextfileExporter
from flightlog.store import layout
from flightlog.store.liveness import Observer, unix_time
from flightlog.store.run import Run

HOSTILE = 'a"b\\c\nd{e="f"} é \N{LINE SEPARATOR}'
ENDED = unix_time(at(10))
assert ENDED is not None


def collector(folder: Path, *, later_s: float = 60.0, **options) -> RunsCollector:
    return RunsCollector(folder, observe=lambda: Observer(now=ENDED + later_s, host="elsewhere"), **options)


def text_of(folder: Path, **options) -> str:
    return MetricsPage(collector(folder, **options)).answer()[0].decode()


def values(text: str) -> dict[tuple[str, str], float]:
    """Values by sample and by its labels beside project and run."""
    return {
        (
            sample.name,
            ",".join(f"{k}={v}" for k, v in sample.labels.items() if k not in {"project", "run_id"}),
        ): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def test_a_page_says_what_a_run_holds(tmp_path: Path) -> None:
    make_run(tmp_path, a_bit_of_everything())
    found = values(text_of(tmp_path))
    assert found["flightlog_tasks_completed_total", ""] == 1
    assert found["flightlog_tasks", "state=completed"] == 1
    assert found["flightlog_task_duration_seconds_bucket", "le=5.0,task=simulate"] == 1
    assert found["flightlog_task_duration_seconds_bucket", "le=1.0,task=simulate"] == 0
    assert found["flightlog_task_duration_seconds_sum", "task=simulate"] == 2.0
    assert found["flightlog_failures_total", "error_type=simulate,scope=run"] == 1
    assert found["flightlog_cache_lookups_total", "result=hit"] == 1
    assert found["flightlog_cost", "currency=EUR"] == 1.5
    assert found["flightlog_run_status", "status=completed"] == 1
    assert found["flightlog_run_status", "status=running"] == 0
    assert found["flightlog_run_duration_seconds", ""] == 10.0
    assert found["flightlog_recorder_lost_lines_total", ""] == 0
    assert found["flightlog_runs", "status=completed"] == 1
    assert found["flightlog_runs_unreadable", ""] == 0
    assert ("flightlog_node_cpu_ratio", "host=simulate") not in found  # it ran, and does not run


def test_what_is_so_now_is_given_of_a_run_that_runs(tmp_path: Path) -> None:
    running = {"status": "running", "end_time": None, "host": "node-1", "heartbeat": at(69)}
    make_run(tmp_path, a_bit_of_everything(), **running)
    found = values(text_of(tmp_path))
    assert found["flightlog_node_cpu_ratio", "host=simulate"] == 0.5
    assert found["flightlog_gpu_utilization_ratio", "gpu=0,gpu_name=simulate,host=simulate"] == 0.5
    assert found["flightlog_workers", ""] == 1
    assert ("flightlog_run_end_time_seconds", "") not in found


@pytest.mark.parametrize("name", ["simulate", HOSTILE, "", "x" * 5000])
def test_any_name_makes_a_valid_page_in_both_formats(tmp_path: Path, name: str) -> None:
    make_run(tmp_path, a_bit_of_everything(name), target=name, provider=name)
    page = MetricsPage(collector(tmp_path))
    text, kind = page.answer("text/plain")
    assert kind.startswith("text/plain; version=")
    assert "simulate" in text.decode() or name != "simulate"
    labels = {
        sample.labels["task"]
        for family in parse_text(text.decode())
        for sample in family.samples
        if "task" in sample.labels
    }
    assert labels == {name[:100]}
    openmetrics, kind = page.answer("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(openmetrics.decode()))) > 20


def test_a_name_belongs_to_one_family_whatever_the_runs(tmp_path: Path) -> None:
    make_run(tmp_path, a_bit_of_everything(), token="00000001")
    make_run(tmp_path, a_bit_of_everything("other"), token="00000002")
    lines = text_of(tmp_path).splitlines()
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len({line.split()[2] for line in types})
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_ten_thousand_tasks_make_a_page_of_a_few_kilobytes(tmp_path: Path) -> None:
    events: list[Event] = []
    for number in range(10_000):
        task_id = f"task-{number:06d}-of-many"
        events.append(TaskSubmitted(task="simulate", task_id=task_id, args={"seed": number}))
        events.append(
            TaskCompleted(task="simulate", task_id=task_id, args={}, worker=f"w{number % 50}", duration_s=1.0)
        )
    make_run(tmp_path, events)
    text = text_of(tmp_path)
    assert values(text)["flightlog_tasks_completed_total", ""] == 10_000
    assert len(text) < 16_000
    assert "task-0" not in text


def test_a_page_of_many_runs_with_many_names_is_bounded(tmp_path: Path) -> None:
    events = [
        TaskCompleted(task=f"function_{n}", task_id=str(n), args={}, worker="w", duration_s=1.0)
        for n in range(40)
    ]
    for number in range(30):
        make_run(tmp_path, events, token=f"{number:08x}")
    text = text_of(tmp_path)
    found = values(text)
    assert found["flightlog_runs_hidden", ""] == 10
    assert len({line for line in text.splitlines() if line.startswith("flightlog_run_info{")}) == 20
    assert len(text) < 1_000_000


def test_runs_that_ended_long_ago_are_counted_and_not_shown(tmp_path: Path) -> None:
    make_run(tmp_path, a_bit_of_everything())
    text = text_of(tmp_path, later_s=3601.0)
    assert "flightlog_run_info{" not in text
    assert values(text)["flightlog_runs", "status=completed"] == 1
    assert "flightlog_run_info{" in text_of(tmp_path, later_s=3601.0, recent_s=7200.0)


def test_an_empty_folder_and_a_missing_one_have_a_page(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert values(text_of(folder))["flightlog_runs", "status=running"] == 0


def test_a_run_that_cannot_be_read_is_a_number_and_the_others_are_shown(tmp_path: Path, monkeypatch) -> None:
    make_run(tmp_path, a_bit_of_everything(), token="00000001")
    bad = make_run(tmp_path, a_bit_of_everything(), token="00000002")
    real = RunWatch.look

    def look(self, observer):
        if self.path == bad:
            raise PermissionError(13, "Permission denied")
        return real(self, observer)

    monkeypatch.setattr(RunWatch, "look", look)
    found = values(text_of(tmp_path))
    assert found["flightlog_runs_unreadable", ""] == 1
    assert found["flightlog_tasks_completed_total", ""] == 1


@pytest.mark.parametrize("damage", ["no run.json", "torn run.json", "garbage lines", "a folder for a file"])
def test_a_damaged_run_makes_no_error(tmp_path: Path, damage: str) -> None:
    path = make_run(tmp_path, a_bit_of_everything())
    if damage == "no run.json":
        (path / "run.json").unlink()
    elif damage == "torn run.json":
        (path / "run.json").write_text('{"run_id": "run')
    elif damage == "garbage lines":
        (path / "tasks.jsonl").write_bytes(b"\0\xff\n{}\n[]\n")
    else:
        (path / "tasks.jsonl").unlink()
        (path / "tasks.jsonl").mkdir()
    found = values(text_of(tmp_path, recent_s=1e9))
    assert found["flightlog_runs_unreadable", ""] == 0
    assert any(name == "flightlog_run_info" for name, _ in found)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with MetricsServer("127.0.0.1", 0, MetricsPage(collector(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.address
        server.shutdown()
        thread.join()


def test_a_server_gives_the_page_and_nothing_else(tmp_path: Path) -> None:
    make_run(tmp_path, a_bit_of_everything())
    with served(tmp_path) as address:
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert values(answer.read().decode())["flightlog_scrapes_total", ""] == 1
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(address.replace("/metrics", "/../../etc/passwd"))
        assert refused.value.code == 404
        refused.value.close()


def test_scrapes_at_the_same_time_count_every_task_once(tmp_path: Path) -> None:
    make_run(tmp_path, a_bit_of_everything())
    found: list[float] = []
    with served(tmp_path) as address:

        def scrape() -> None:
            with urllib.request.urlopen(address) as answer:
                found.append(values(answer.read().decode())["flightlog_tasks_completed_total", ""])

        threads = [threading.Thread(target=scrape) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [1.0] * 8


def test_a_port_that_is_taken_is_said_in_a_line(tmp_path: Path) -> None:
    with served(tmp_path) as address:
        port = int(address.rsplit(":", 1)[1].partition("/")[0])
        with pytest.raises(
            UsageError, match=f"port {port}: Address already in use; another --port may be free"
        ):
            MetricsServer("127.0.0.1", port, MetricsPage(collector(tmp_path)))


def test_a_page_that_fails_is_an_error_with_a_reason_and_the_server_goes_on(tmp_path: Path) -> None:
    class Failing(RunsCollector):
        def collect(self) -> Iterator[Metric]:
            raise OSError(5, "Input/output error")

    with MetricsServer("127.0.0.1", 0, MetricsPage(Failing(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen(server.address)
            assert failed.value.code == 500
            assert b"Input/output error" in failed.value.read()
            failed.value.close()
        server.shutdown()
        thread.join()


def test_a_file_for_node_exporter_holds_the_run_and_is_replaced_whole(tmp_path: Path) -> None:
    path, output = make_run(tmp_path / "runs", a_bit_of_everything()), tmp_path / "run.prom"
    output.write_text("old")
    exported = TextfileExporter().export(Run(path), output, ExportOptions())
    text = output.read_text()
    assert values(text)["flightlog_tasks_completed_total", ""] == 1
    assert values(text)["flightlog_node_cpu_ratio", "host=simulate"] == 0.5  # as of its end
    assert exported.counts == {"series": len([line for line in text.splitlines() if line[0] != "#"])}
    assert (exported.to, exported.where, exported.notes) == ("prometheus", str(output), ())
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["run.prom"]


def test_a_run_that_is_followed_is_written_again_until_it_is_over(tmp_path: Path) -> None:
    output = tmp_path / "run.prom"
    seen: list[float] = []
    recording = flightlog.record("demo", runs_dir=tmp_path / "runs", sample_interval_s=None)
    run = recording.__enter__()

    def wait(seconds: float) -> None:
        assert seconds == PrometheusLimits.textfile_interval_s
        seen.append(values(output.read_text())["flightlog_tasks_completed_total", ""])
        if len(seen) < 3:
            with run.task("simulate"):
                pass
        else:
            recording.__exit__(None, None, None)

    exported = TextfileExporter(sleep=wait).export(Run(run.path), output, ExportOptions(follow=True))
    assert (seen, exported.notes) == ([0.0, 1.0, 2.0], ())
    assert values(output.read_text())["flightlog_run_status", "status=completed"] == 1


def test_a_run_that_runs_is_written_as_it_is_with_a_note(tmp_path: Path) -> None:
    with flightlog.record("demo", runs_dir=tmp_path / "runs", sample_interval_s=None) as run:
        exported = TextfileExporter().export(Run(run.path), tmp_path / "run.prom", ExportOptions())
    assert exported.notes == (
        "the run is running: these are its metrics so far; --follow keeps them up to date",
    )


def test_a_file_that_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    path = make_run(tmp_path, a_bit_of_everything())
    with pytest.raises(UsageError, match=r"cannot write .*: No such file or directory"):
        TextfileExporter().export(Run(path), tmp_path / "missing" / "run.prom", ExportOptions())


def test_runs_that_run_come_first_then_the_newest(tmp_path: Path) -> None:
    running = {"status": "running", "end_time": None, "heartbeat": at(69)}
    first = make_run(tmp_path, token="00000001", start_time=at(1), **running)
    old = make_run(tmp_path, token="00000002", start_time=at(2))
    new = make_run(tmp_path, token="00000003", start_time=at(3))
    observer = Observer(now=ENDED + 60, host="elsewhere")
    assert choose(tmp_path, observer, recent_s=3600.0, max_runs=2) == Choice(
        shown=(first, new), hidden=1, statuses={"running": 1, "completed": 2}
    )
    assert choose(tmp_path, observer, recent_s=3600.0, max_runs=9).shown == (first, new, old)


def test_a_run_that_ended_long_ago_is_counted_and_shown_again_when_it_goes_on(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    later = Observer(now=ENDED + 7200, host="elsewhere")
    for _ in range(2):
        past = choose(tmp_path, later, recent_s=3600.0, max_runs=9)
        assert past == Choice(shown=(), hidden=0, statuses={"completed": 1})
    document = layout.RunInfo(
        run_id=path.name,
        project="demo",
        status="running",
        start_time=at(1),
        host="node-1",
        heartbeat=at(7205),
    )
    (path / layout.RUN).write_bytes(msgspec.json.encode(document))
    os.utime(path / layout.RUN, ns=(1, 1))
    gone_on = choose(tmp_path, later, recent_s=3600.0, max_runs=9)
    assert gone_on == Choice(shown=(path,), hidden=0, statuses={"running": 1})
