"""A real job of `torch.distributed` under `flightlog run --device-memory`: one run, a session for each
rank."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flightlog.devices import load_telemetry_sessions, telemetry_event_to_dict, validate_telemetry_record
from flightlog.record.device.oom import bundles
from flightlog.store.run import Run

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

FLIGHTLOG = [sys.executable, "-m", "flightlog.cli.main"]
TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--nproc_per_node", "4"]
AS_MODULE = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "4"]

UNCHANGED = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(256, 256)
parallel = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    parallel(torch.randn(64, 256)).square().mean().backward()
    optimizer.step()
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
if dist.get_rank() == 0:
    print("sum of ranks", total.item(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""

AWARE = """
import flightlog, torch
import torch.distributed as dist

dist.init_process_group("gloo")
with flightlog.track_device_memory("torch") as tracker:
    tracker.align()
    for epoch in range(2):
        with flightlog.span("epoch", number=epoch):
            kept = torch.ones(1_000_000 * (1 + dist.get_rank()))
            tracker.sample()
    dist.barrier()
    if dist.get_rank() == 2:
        try:
            with flightlog.span("evaluate"):
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        except torch.OutOfMemoryError:
            pass
dist.barrier()
dist.destroy_process_group()
"""


TORN_DOWN = "terminate called without an active exception"
"""What a rank says that Gloo's threads abort while it ends: seen now and then, where nothing of Flightlog is
in it."""


@pytest.fixture
def job(tmp_path: Path):
    """Record a training script on four ranks; gives the run and what was printed."""

    def run(
        source: str, *options: str, launcher: list[str] = TORCHRUN
    ) -> tuple[Run, subprocess.CompletedProcess[str]]:
        script = tmp_path / "train.py"
        script.write_text(source)
        env = {**os.environ, "FLIGHTLOG_RUNS_DIR": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"}
        words = [*FLIGHTLOG, "run", *options, "--", *launcher, str(script)]
        for _ in range(3):
            shutil.rmtree(tmp_path / "runs", ignore_errors=True)
            ended = subprocess.run(words, env=env, check=False, capture_output=True, text=True, timeout=240)
            if TORN_DOWN not in ended.stderr:
                break
        assert ended.returncode == 0, ended.stderr
        [path] = (tmp_path / "runs").iterdir()
        return Run(path), ended

    return run


def sessions_of(run: Run) -> list[Any]:
    return sorted(load_telemetry_sessions(run.path / "devices.jsonl"), key=lambda s: s.summary.rank)


def test_four_ranks_of_an_unchanged_program_give_one_run_with_four_sessions(job):
    run, ended = job(UNCHANGED, "--device-memory=torch")
    assert ended.stdout == "sum of ranks 6.0\n"
    assert run.info.status == "completed"
    found = sessions_of(run)
    assert [
        (s.summary.rank, s.summary.local_rank, s.summary.world_size, s.summary.status) for s in found
    ] == [(rank, rank, 4, "completed") for rank in range(4)]
    assert len({s.summary.pid for s in found}) == 4
    assert len({s.summary.job_id for s in found}) == 1
    for event in run.events("devices"):
        assert event.collector == "flightlog.torch.cpu"
        validate_telemetry_record(telemetry_event_to_dict(event))


def test_ranks_that_know_the_recorder_add_phases_clock_offsets_and_bundles(job):
    run, _ = job(AWARE, "--device-memory=torch", launcher=AS_MODULE)
    found = sessions_of(run)
    assert [s.summary.rank for s in found] == [0, 1, 2, 3]
    for session in found:
        contexts = {event.context for event in session.events}
        assert "epoch" in contexts
        [offset] = {e.metadata["clock_offset_ns"] for e in session.events if "clock_offset_ns" in e.metadata}
        assert isinstance(offset, int)
        assert (session.summary.rank != 0) or offset == 0
    [folder] = bundles(run.path)
    said = json.loads((folder / "bundle.json").read_text())
    assert (said["rank"], said["world_size"], said["context"]) == (2, 4, "evaluate")
    assert {e.rank for s in load_telemetry_sessions(folder / "events.jsonl") for e in s.events} == {2}


def test_ranks_without_the_option_record_nothing_of_their_own(job):
    run, ended = job(UNCHANGED)
    assert ended.stdout == "sum of ranks 6.0\n"
    assert list(run.events("devices")) == []
