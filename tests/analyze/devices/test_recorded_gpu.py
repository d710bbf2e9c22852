"""A training run recorded on an NVIDIA H200 with PyTorch, which ends out of memory: what is made of it
without a GPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from flightlog.analyze.devices.report import devices_of_run
from flightlog.analyze.report.report import report_on
from flightlog.analyze.verify import verify
from flightlog.devices import (
    load_telemetry_events,
    load_telemetry_sessions,
    telemetry_event_to_dict,
    validate_telemetry_record,
)
from flightlog.show.devices import devices_text
from flightlog.store.run import Run


@pytest.fixture(scope="module")
def run() -> Run:
    golden = Path(__file__).parents[2] / "golden" / "devices" / "gpu-training"
    return Run(next(golden.glob("run-*")))


def test_the_recording_is_as_it_was_made(run: Run) -> None:
    checks = {check.name: check.ok for check in verify(run).checks}
    assert (checks["files"], checks["lines"]) == (True, True)


def test_every_device_event_is_a_valid_record_of_one_completed_session(run: Run) -> None:
    [session] = load_telemetry_sessions(run.path / "devices.jsonl")
    assert session.summary.status == "completed"
    assert Counter(event.event_type for event in session.events) == {
        "sample": 342,
        "allocation": 188,
        "deallocation": 156,
        "peak": 19,
        "start": 1,
        "warning": 1,
        "critical": 1,
        "error": 1,
        "stop": 1,
    }
    for event in session.events:
        validate_telemetry_record(telemetry_event_to_dict(event))
    assert {event.metadata["device_used_source"] for event in session.events} == {"driver"}
    assert {event.context for event in session.events} >= {"build", "epoch", "evaluate", "provoke"}


def test_the_bundle_of_the_out_of_memory_loads_with_the_loader(run: Run) -> None:
    [bundle] = (run.path / "oom").iterdir()
    events = load_telemetry_events(bundle / "events.jsonl")
    assert len(events) > 100
    assert events[-1].context == "provoke"


def test_the_report_of_the_devices_explains_why_memory_ran_out(run: Run) -> None:
    report = devices_of_run(run)
    [session] = report.sessions
    assert session.peak_allocated is not None
    assert (session.peak_allocated.bytes, session.peak_allocated.phase) == (137_672_785_920, "provoke")
    [trouble] = report.out_of_memory
    assert (trouble.rank, trouble.phase) == (0, "provoke")
    assert (trouble.request.tried_bytes, trouble.request.free_bytes) == (12_509_511_680, 11_598_430_208)
    text = devices_text(report)
    assert "ran out of memory 1m 08s in, in `provoke`, asking for 11.7 GiB" in text
    assert "128.2 GiB were in use" in text


def test_the_report_says_first_that_memory_ran_out_why_and_what_to_try(run: Run) -> None:
    report = report_on(run)
    [finding] = [one for one in report.findings if one.kind == "device_memory"]
    assert finding.evidence == {"bundles": ["oom/1-20261115T160515Z"], "phases": ["provoke"], "cause": "full"}
    assert report.verdict.sentence == (
        "Ran out of device memory once, in `provoke`. 128.2 GiB were in use and 11.7 GiB more were needed, "
        "on a device of 139.8 GiB."
    )
    assert report.verdict.advice == "a smaller batch, activation checkpointing or more devices."


def test_the_report_shows_the_gpu_as_its_driver_saw_it(run: Run) -> None:
    gpu = report_on(run).resources.gpu
    assert gpu is not None
    assert gpu.devices == 1
    assert gpu.memory_total_bytes == 150_754_820_096
    assert gpu.power_max_w == pytest.approx(700, abs=5)
