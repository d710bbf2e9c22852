"""What is sent, what a server says to it, and what the next export does about it."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.otlp_receiver import Receiver, attributes, listening
from builders.runs import make_run
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from otlp_lives import ROOT, TRACE, a_run, completed

from flightlog.core.errors import FlightlogError, UsageError
from flightlog.export.base import Exported, ExportOptions
from flightlog.export.limits import ExportLimits
from flightlog.export.otlp import exporter as exporting
from flightlog.export.otlp.exporter import Otlp, checkpoint_file
from flightlog.store.run import Run


class World:
    """An exporter without a network and without time: what it waits is noted."""

    def __init__(self, receiver: Receiver, environ: Mapping[str, str] | None = None) -> None:
        self.waits: list[float] = []
        self._receiver, self._environ = receiver, environ or {}

    def export(self, run: Run, **options: Any) -> Exported:
        exporter = Otlp(
            environ=self._environ, post=self._receiver, sleep=self.waits.append, clock=lambda: sum(self.waits)
        )
        return exporter.export(run, None, ExportOptions(endpoint="http://server:4318", **options))


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExportLimits, "max_batch_items", 7)


def refuse_connection() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def test_all_of_a_run_is_taken_once_and_nothing_by_the_next_export(tmp_path: Path):
    run, receiver = a_run(tmp_path), Receiver()
    first = World(receiver).export(run)
    assert (first.where, first.counts, first.notes) == (
        "http://server:4318",
        {"spans": 8, "points": 51, "log records": 3},
        (),
    )
    assert (len(receiver.spans), len(receiver.points), len(receiver.records)) == (8, 51, 3)
    asked = len(receiver.requests)
    again = World(receiver).export(run)
    assert again.counts == {"spans": 0, "points": 0, "log records": 0}
    assert again.notes == ("nothing new: all of the run was sent before, 62 items (--again sends all)",)
    assert len(receiver.requests) == asked
    assert World(receiver).export(run, again=True).counts == first.counts


def test_what_is_sent_says_who_sends_it(tmp_path: Path):
    receiver = Receiver()
    environ = {
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test%201",
        "OTEL_SERVICE_NAME": "model",
    }
    World(receiver, environ).export(a_run(tmp_path, command=["python", "a.py"]))
    assert receiver.resources[0] == {
        "service.name": "model",
        "service.instance.id": "run-20260520T035200Z-demo-a1b2c3d4",
        "host.name": "node-1",
        "process.pid": 1,
        "process.command_args": ["python", "a.py"],
        "process.runtime.name": "python",
        "process.runtime.version": "3.11.7",
        "telemetry.sdk.name": "flightlog",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": "0.1.0",
        "deployment.environment.name": "test 1",
    }
    nodes = {metric.name: set() for _, metric, _ in receiver.points}
    for node, metric, _ in receiver.points:
        nodes[metric.name].add((node["host.name"], node.get("process.pid")))
    assert nodes["system.cpu.utilization"] == {("node-1", None), ("node-2", None)}
    assert nodes["flightlog.tasks.running"] == {("node-1", 1)}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("taken_first", range(10))
def test_wherever_a_server_breaks_down_the_next_export_goes_on_and_nothing_is_lost_or_doubled(
    tmp_path: Path, taken_first: int
):
    run, whole = a_run(tmp_path), Receiver()
    World(whole).export(a_run(tmp_path / "same"))
    receiver = Receiver()
    receiver.faults.extend([lambda: None] * taken_first)
    receiver.faults.append((500, {}, b"out of order"))
    with pytest.raises(
        exporting.RequestFailed,
        match=r"answered 500: out of order; .* had been sent by then: `flightlog export",
    ):
        World(receiver).export(run)
    World(receiver).export(run)
    assert sorted(receiver.span_ids()) == sorted(whole.span_ids())
    assert sorted(attributes(one)["log.record.uid"] for one in receiver.records) == sorted(
        attributes(one)["log.record.uid"] for one in whole.records
    )
    for name in {metric.name for _, metric, _ in whole.points}:
        assert sorted(receiver.series(name)) == sorted(whole.series(name))


def test_a_server_that_asks_to_wait_is_waited_for_as_long_as_it_says(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.extend([(429, {"Retry-After": "7"}, b""), (503, {}, b"")])
    world = World(receiver)
    assert world.export(a_run(tmp_path)).counts["spans"] == 8
    assert world.waits[0] == 7.0
    assert 0.5 <= world.waits[1] <= 1.5


def test_a_server_that_asks_to_come_back_at_once_is_not_asked_without_end(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.extend([(429, {"Retry-After": "0"}, b"")] * 1000)
    world = World(receiver)
    with pytest.raises(exporting.RequestFailed, match="answered 429"):
        world.export(a_run(tmp_path))
    assert sum(world.waits) <= 30
    assert len(receiver.requests) <= 61


def test_time_that_a_server_takes_not_to_answer_counts_as_waiting(tmp_path: Path):
    receiver, spent = Receiver(), [0.0]

    def hang() -> None:
        spent[0] += 10.0
        raise TimeoutError("timed out")

    receiver.faults.extend([hang] * 100)
    exporter = Otlp(environ={}, post=receiver, sleep=lambda _: None, clock=lambda: spent[0])
    with pytest.raises(exporting.RequestFailed, match=r"does not answer \(timed out\)"):
        exporter.export(a_run(tmp_path), None, ExportOptions(endpoint="http://server:4318"))
    assert len(receiver.requests) == 1


def test_a_server_that_was_never_heard_of_is_tried_for_seconds_and_then_named(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.extend([refuse_connection] * 100)
    world = World(receiver)
    with pytest.raises(exporting.RequestFailed) as found:
        world.export(a_run(tmp_path))
    assert str(found.value) == (
        "http://server:4318/v1/logs does not answer (Connection refused); nothing had been sent by then: "
        f"`flightlog export {tmp_path}/run-20260520T035200Z-demo-a1b2c3d4 --to otlp --endpoint "
        "http://server:4318` "
        "goes on from there"
    )
    assert found.value.exits_with == 1
    assert 1 < sum(world.waits) <= 5


def test_a_server_that_goes_away_is_tried_for_half_a_minute(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.extend([lambda: None, *[refuse_connection] * 100])
    world = World(receiver)
    with pytest.raises(exporting.RequestFailed, match="1 log records had been sent by then"):
        world.export(a_run(tmp_path))
    assert 10 < sum(world.waits) <= 30


def test_a_request_that_is_wrong_is_not_tried_again(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.append((400, {}, b"bad span"))
    world = World(receiver)
    with pytest.raises(exporting.RequestFailed, match="answered 400: bad span"):
        world.export(a_run(tmp_path))
    assert (world.waits, len(receiver.requests)) == ([], 1)


def test_what_a_server_takes_only_in_part_is_an_error_once_and_is_not_sent_again(tmp_path: Path):
    run, receiver = a_run(tmp_path, completed("t1", 1, 1.0, 2.0)), Receiver()
    partly = ExportTraceServiceResponse()
    partly.partial_success.rejected_spans = 1
    partly.partial_success.error_message = "too old"
    receiver.faults.append((200, {}, partly.SerializeToString()))
    with pytest.raises(FlightlogError, match=r"1 spans were refused \(too old\)"):
        World(receiver).export(run)
    assert World(receiver).export(run).counts["spans"] == 0


def test_signals_that_a_server_does_not_take_are_left_out_and_said(tmp_path: Path):
    receiver = Receiver()
    receiver.takes = {"traces"}
    run = a_run(tmp_path)
    exported = World(receiver).export(run)
    assert exported.counts == {"spans": 8, "points": 0, "log records": 0}
    assert exported.notes == (
        "http://server:4318 takes no logs (404): left out",
        "http://server:4318 takes no metrics (404): left out",
    )
    receiver.takes = {"traces", "metrics", "logs"}
    assert World(receiver).export(run).counts == {"spans": 0, "points": 51, "log records": 3}


def test_a_server_that_takes_nothing_at_all_is_an_error(tmp_path: Path):
    receiver = Receiver()
    receiver.takes = set()
    with pytest.raises(exporting.RequestFailed, match="answered 404: no such place"):
        World(receiver).export(a_run(tmp_path))


def test_a_request_that_is_too_large_is_sent_in_halves(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.append((413, {}, b""))
    World(receiver, {"OTEL_LOGS_EXPORTER": "none"}).export(a_run(tmp_path))
    assert len(receiver.span_ids()) == len(set(receiver.span_ids())) == 8


def test_a_half_that_was_taken_is_not_sent_again_when_the_other_must_wait(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.extend([(413, {}, b""), lambda: None, (503, {}, b"")])
    World(receiver, {"OTEL_LOGS_EXPORTER": "none"}).export(a_run(tmp_path))
    assert len(receiver.span_ids()) == len(set(receiver.span_ids())) == 8


class Picky(Receiver):
    """A server that refuses every request with a span of this name in it."""

    def __init__(self, name: bytes, status: int) -> None:
        super().__init__()
        self._name, self._status = name, status

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Any:
        if url.endswith("traces") and self._name in body:
            self.requests.append((url, {}))
            return self._status, {}, b"bad span"
        return super().post(url, body, headers)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_span_that_a_server_never_takes_does_not_keep_it_from_the_others(tmp_path: Path, status: int):
    run, receiver = a_run(tmp_path), Picky(b"wait", status)
    with pytest.raises(
        exporting.RequestFailed, match=rf"1 spans were refused \(.*answered {status}: bad span\)"
    ):
        World(receiver).export(run)
    assert len(receiver.span_ids()) == len(set(receiver.span_ids())) == 7
    assert World(receiver).export(run).counts == {"spans": 0, "points": 0, "log records": 0}


def test_a_server_that_finds_every_request_wrong_is_asked_a_few_times_and_gets_all_once_it_is_mended(
    tmp_path: Path,
):
    run, receiver = a_run(tmp_path), Picky(b"", 400)
    for _ in range(2):
        before = len(receiver.requests)
        with pytest.raises(exporting.RequestFailed, match="answered 400: bad span"):
            World(receiver).export(run)
        assert len(receiver.requests) - before < 10
    mended = Receiver()
    World(mended).export(run)
    assert len(mended.span_ids()) == 8


def test_what_a_server_repeats_of_a_secret_is_not_told(tmp_path: Path):
    receiver = Receiver()
    receiver.faults.append((401, {}, b"no such token: s3cret"))
    world = World(receiver, {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret"})
    with pytest.raises(exporting.RequestFailed, match="answered 401: no such token: …;"):
        world.export(a_run(tmp_path))


def test_all_signals_after_traces_alone_send_the_rest_and_nothing_twice(tmp_path: Path):
    run, receiver = a_run(tmp_path), Receiver()
    World(receiver, {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}).export(run)
    assert World(receiver).export(run).counts == {"spans": 0, "points": 51, "log records": 3}
    Otlp(environ={}, post=receiver).export(run, None, ExportOptions(endpoint="http://server:4318/v1/traces"))
    assert len(receiver.spans) == 8


def test_an_answer_that_never_ends_is_no_answer(tmp_path: Path):
    door = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        while not over.is_set():
            guest, _ = door.accept()
            try:
                guest.recv(1 << 20)
                guest.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while not over.wait(0.01):
                    guest.sendall(b"x")
            except OSError:
                pass
            guest.close()

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        environ = {"OTEL_EXPORTER_OTLP_TIMEOUT": "0.2", "OTEL_LOGS_EXPORTER": "none"}
        exporter = Otlp(environ=environ, sleep=lambda _: None)
        with pytest.raises(exporting.RequestFailed, match=r"does not answer \(timed out\)"):
            exporter.export(
                a_run(tmp_path), None, ExportOptions(endpoint=f"http://127.0.0.1:{door.getsockname()[1]}")
            )
    finally:
        over.set()
        with contextlib.suppress(OSError):
            socket.create_connection(door.getsockname()).close()
        thread.join()
        door.close()


def test_compressed_requests_and_json_are_taken_too(tmp_path: Path):
    receiver = Receiver()
    environ = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=abc"}
    World(receiver, environ).export(a_run(tmp_path))
    assert len(receiver.spans) == 8
    assert {headers["x-key"] for _, headers in receiver.requests} == {"abc"}
    in_json = Receiver()
    World(in_json, {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}).export(a_run(tmp_path / "json"))
    assert in_json.spans == receiver.spans
    assert in_json.records == receiver.records
    assert in_json.points == receiver.points


def test_one_run_is_sent_to_one_place_by_one_process_at_a_time(tmp_path: Path):
    run = a_run(tmp_path)
    addresses = ["http://server:4318/v1/traces"]
    file = checkpoint_file(run.path, addresses).with_suffix(".lock")
    file.parent.mkdir()
    with file.open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FlightlogError, match="being sent to http://server:4318 already, by process 4711"):
            World(Receiver()).export(run)


def test_two_places_are_remembered_apart_and_no_secret_is_written_down(tmp_path: Path):
    run, one, other = a_run(tmp_path), Receiver(), Receiver()
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret"}
    for receiver, endpoint in ((one, "http://me:s3cret@a:1"), (other, "http://b:2?key=s3cret")):
        exporter = Otlp(environ=environ, post=receiver)
        exporter.export(run, None, ExportOptions(endpoint=endpoint))
    assert (len(one.spans), len(other.spans)) == (8, 8)
    written = [file.read_bytes() for file in run.path.rglob("*") if file.is_file()]
    assert not [content for content in written if b"s3cret" in content]


def test_options_of_others_and_an_output_are_refused(tmp_path: Path):
    run = a_run(tmp_path, [])
    with pytest.raises(UsageError, match="--table does not go with --to otlp"):
        World(Receiver()).export(run, tables=("tasks",))
    with pytest.raises(FlightlogError, match="leave the output out"):
        Otlp(environ={}).export(run, tmp_path / "x", ExportOptions())


def test_over_a_real_socket_a_slow_server_is_given_up_and_gets_the_rest_later(tmp_path: Path):
    receiver, run = Receiver(), a_run(tmp_path)
    environ = {
        "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
    }
    with listening(receiver) as address:
        receiver.delay_s = 0.5
        exporter = Otlp(environ=environ, sleep=lambda _: None)
        with pytest.raises(exporting.RequestFailed, match=r"does not answer \(timed out\)"):
            exporter.export(run, None, ExportOptions(endpoint=address))
        receiver.delay_s = 0.0
        exporter.export(run, None, ExportOptions(endpoint=address))
    assert len(set(receiver.span_ids())) == 8


def test_a_port_that_nobody_listens_at_is_named_with_the_reason(tmp_path: Path):
    with listening(Receiver()) as address:
        pass
    with pytest.raises(exporting.RequestFailed, match=r"does not answer \(Connection refused\)"):
        Otlp(environ={}, sleep=lambda _: None).export(a_run(tmp_path), None, ExportOptions(endpoint=address))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("taken_first", range(4))
def test_lines_without_numbers_are_sent_once_too(tmp_path: Path, taken_first: int):
    events = [
        event for number in range(1, 20) for event in completed(f"t{number}", number, number, number + 1)
    ]
    run = Run(make_run(tmp_path, events, numbered=False, trace_id=TRACE, span_id=ROOT))
    receiver = Receiver()
    receiver.faults.extend([*[lambda: None] * taken_first, (500, {}, b"")])
    with pytest.raises(exporting.RequestFailed):
        World(receiver).export(run)
    World(receiver).export(run)
    assert sorted(receiver.span_ids()) == sorted([ROOT, *(f"{number:016x}" for number in range(1, 20))])


def test_notes_that_cannot_be_read_send_all_again_and_that_is_said(tmp_path: Path):
    run, receiver = a_run(tmp_path), Receiver()
    World(receiver).export(run)
    (file,) = (run.path / ".followers").glob("otlp-*.json")
    file.write_text('{"lines": 5')
    exported = World(receiver).export(run)
    assert exported.counts["spans"] == 8
    assert exported.notes == (
        f"{file} could not be read, where it is noted what was sent before: all of it was sent again",
    )


def test_a_run_that_cannot_be_written_to_is_sent_and_it_is_said_that_nothing_could_be_noted(tmp_path: Path):
    run, receiver = a_run(tmp_path), Receiver()
    (run.path / ".followers").write_text("in the way")
    exported = World(receiver).export(run)
    assert exported.counts["spans"] == 8
    assert exported.notes == (
        f"what was sent cannot be noted in {run.path / '.followers'} (File exists): another export will "
        "send it again",
    )
