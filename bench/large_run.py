"""A closed run of very many tasks, written straight into its files: four lines a task, and one span."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from flightlog.store import layout
from flightlog.store.integrity import write_checksums

NAMES, WORKERS = 20, 64
HANDOVER_S = (5e-5, 1.5e-4)
"""From the end of a task on a worker to the start of the next, at least and at most."""
_START = datetime(2026, 5, 20, 3, 52, tzinfo=UTC)
_SUBMITTED = (
    '{"event":"task_submitted","timestamp":"%s","writer":"w0000001","seq":%d,"task":"%s","task_id":"%s",'
    '"component":"local","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"%s","parent_id":"00f067aa0ba902b7",'
    '"args":{"seed":%d,"scenario":"base","scale":%.2f},"args_digest":"%s"}\n'
)
_QUEUED = (
    '{"event":"task_queued","timestamp":"%s","writer":"w0000001","seq":%d,"task":"%s","task_id":"%s",'
    '"component":"local","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"%s","parent_id":"00f067aa0ba902b7"}\n'
)
_STARTED = (
    '{"event":"task_started","timestamp":"%s","writer":"w0000001","seq":%d,"task":"%s","task_id":"%s",'
    '"component":"local","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"%s","parent_id":"00f067aa0ba902b7",'
    '"worker":"%s","queue_s":%.6f}\n'
)
_COMPLETED = (
    '{"event":"task_completed","timestamp":"%s","writer":"w0000001","seq":%d,"task":"%s","task_id":"%s",'
    '"component":"local","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"%s","parent_id":"00f067aa0ba902b7",'
    '"args":{"seed":%d,"scenario":"base","scale":%.2f},"worker":"%s","duration_s":%.6f,"args_digest":"%s",'
    '"queue_s":%.6f,"cpu_s":%.6f,"cpu_scope":"thread","peak_rss_bytes":%d,"rss_scope":"process",'
    '"metrics":{"loss":%.4f},"result_bytes":%d}\n'
)
_SPAN = (
    '{"event":"span","timestamp":"%s","writer":"w0000001","seq":%d,"name":"simulate.step","tags":{"seed":%d},'
    '"metrics":{"loss":%.4f},"status":"ok","duration_s":%.6f,"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736",'
    '"span_id":"%s","parent_id":"%s","thread":1}\n'
)


def write_large_run(runs_dir: Path, tasks: int, *, seed: int = 1, token: str = "a1b2c3d4") -> Path:
    """Write a closed run of so many tasks and give its path; the same arguments give the same bytes."""
    run_id = f"run-20260520T035200Z-large-{token}"
    path = runs_dir / run_id
    path.mkdir(parents=True)
    dice = random.Random(seed)
    free = [0.0] * WORKERS
    seconds: dict[int, str] = {}

    def at(when: float) -> str:
        whole, fraction = divmod(round(when * 1e6), 1_000_000)
        text = seconds.get(whole)
        if text is None:
            text = seconds[whole] = f"{_START + timedelta(seconds=whole):%Y-%m-%dT%H:%M:%S}"
        return f"{text}.{fraction:06d}Z"

    with (path / "tasks.jsonl").open("w") as out, (path / "spans.jsonl").open("w") as spans:
        for n in range(tasks):
            name, task_id, span_id = f"model.stage_{n % NAMES:02d}", f"t{n:07d}-5f3c", f"{n + 1:016x}"
            digest, scale = f"{n * 2654435761 % 2**64:016x}", dice.random()
            submitted = n * 1e-4
            slot = n % WORKERS
            started = max(submitted, free[slot] + dice.uniform(*HANDOVER_S))
            duration = dice.lognormvariate(-3.0 + 0.05 * (n % NAMES), 0.6)
            ended = free[slot] = started + duration
            worker, queue_s = f"worker-{slot:02d}", started - submitted
            common = (name, task_id)
            out.write(_SUBMITTED % (at(submitted), 4 * n, *common, span_id, n, scale, digest))
            out.write(_QUEUED % (at(submitted), 4 * n + 1, *common, span_id))
            out.write(_STARTED % (at(started), 4 * n + 2, *common, span_id, worker, queue_s))
            out.write(
                _COMPLETED
                % (
                    at(ended),
                    4 * n + 3,
                    *common,
                    span_id,
                    n,
                    scale,
                    worker,
                    duration,
                    digest,
                    queue_s,
                    duration * 0.9,
                    100_000_000 + n % 1000 * 65536,
                    scale,
                    1000 + n % 97,
                )
            )
            spans.write(_SPAN % (at(started), n, n, scale, duration * 0.95, f"{2**63 + n:016x}", span_id))
    end = max(free)
    info = layout.RunInfo(
        run_id=run_id,
        project="large",
        status="completed",
        start_time=at(0),
        end_time=at(end),
        duration_s=end,
        tasks_submitted=tasks,
        tasks_completed=tasks,
        tasks_failed=0,
        host="node-1",
        pid=1,
        writer="w0000001",
    )
    (path / layout.RUN).write_bytes(msgspec.json.encode(info))
    lines = {"tasks": 4 * tasks, "spans": tasks}
    wrote = layout.WriterInfo(writer="w0000001", pid=1, host="node-1", closed=True, owner=True, lines=lines)
    (path / layout.RECORDER).write_bytes(msgspec.json.encode({"writers": [wrote]}))
    write_checksums(path)
    return path


if __name__ == "__main__":
    print(write_large_run(Path(sys.argv[1]), int(sys.argv[2])))
