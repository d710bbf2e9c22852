"""A session's workers track their device memory where the environment asks for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from sessions import THREADS, events_of, session_in

from flightlog.devices import load_telemetry_sessions
from flightlog.events import DeviceMemory
from flightlog.record.device.oom import bundles

ASKED = {"FLIGHTLOG_DEVICE_MEMORY": "torch", "FLIGHTLOG_DEVICE_MEMORY_INTERVAL": "30"}


def use_torch(number: int) -> int:
    """A task that imports a framework, and takes a sample of its own."""
    import flightlog

    stand_in = SimpleNamespace(
        version=SimpleNamespace(cuda=None, hip=None), backends=SimpleNamespace(), cuda=SimpleNamespace()
    )
    sys.modules.setdefault("torch", stand_in)
    with flightlog.track_device_memory() as tracker:
        tracker.sample()
    return number


def run_out() -> None:
    raise RuntimeError("CUDA error: out of memory")


def test_each_worker_process_has_a_session_of_its_own_that_goes_on_between_tasks(tmp_path, monkeypatch):
    for name, value in ASKED.items():
        monkeypatch.setenv(name, value)
    with session_in(tmp_path) as session:
        assert session.client.gather(session.client.map(use_torch, range(6))) == list(range(6))
    found = events_of(session, "devices", DeviceMemory)
    tasks = {event.context for event in found if event.event_type == "sample"}
    assert "use_torch" in tasks
    assert all(e.metadata["task_id"] for e in found if e.context == "use_torch")
    sessions = load_telemetry_sessions(session.path / "devices.jsonl")
    assert {s.summary.status for s in sessions} == {"completed"}
    assert len({s.summary.pid for s in sessions}) == len(sessions) <= 3


@pytest.mark.parametrize("where", [None, THREADS], ids=["processes", "threads"])
def test_a_task_that_runs_out_of_memory_leaves_a_bundle_that_names_it(tmp_path, where):
    with session_in(tmp_path, **({} if where is None else {"where": where})) as session:
        future = session.client.submit(run_out)
        with pytest.raises(RuntimeError, match="CUDA error: out of memory"):
            future.result()
    [folder] = bundles(session.path)
    assert '"task":"run_out"' in (folder / "bundle.json").read_text().replace(" ", "")
