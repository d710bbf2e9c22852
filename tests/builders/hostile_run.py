"""A closed run in which every text is an attack: on pages, terminals, templates, paths, queries and patience.

Nothing in it is malformed but the few lines that say so: a reader must take every text as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from builders.runs import at, make_run

from flightlog.events import (
    ArtifactRecorded,
    CacheLookup,
    CostEstimate,
    CostRates,
    DeviceMemory,
    Event,
    Failure,
    JobAccounted,
    JobStarted,
    ResourceRequest,
    ResourceSample,
    SpanEvent,
    SpanOpened,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskQueued,
    TaskRetried,
    TaskStarted,
    TaskSubmitted,
    WorkerLaunched,
    WorkerLost,
    WorkerReady,
    WorkerRemoved,
)
from flightlog.store import layout
from flightlog.store.documents import read_document
from flightlog.store.integrity import write_checksums
from flightlog.store.layout import Adopted

TRICKS: dict[str, str] = {
    "script": "<script>window.pwned=1</script>",
    "image": '"><img src=x onerror=window.pwned=1>',
    "single quoted": "'><svg onload=window.pwned=1>",
    "end of script": "</script><script>window.pwned=1</script>",
    "end of comment": "--><script>window.pwned=1</script><!--",
    "end of text": "</textarea></title></style><img src=x onerror=window.pwned=1>",
    "address": "javascript:window.pwned=1",
    "data address": "data:text/html,<script>window.pwned=1</script>",
    "outside": '<img src="http://flightlog.invalid/seen.png">'
    "<link rel=stylesheet href=//flightlog.invalid/s.css>",
    "style": "red;background:url(http://flightlog.invalid/seen.css)",
    "code": '";window.pwned=1;//',
    "other code": "'-(window.pwned=1)-'",
    "backtick code": "`${window.pwned=1}`",
    "template": "{{7*7}} ${7*7} {%print(7*7)%} <%= 7*7 %> #{7*7}",
    "format": "%s%n{0.__class__}{name!r}",
    "component": "{{constructor.constructor('window.pwned=1')()}}",
    "figure": '<b>bold</b><br><a href="javascript:window.pwned=1">here</a><i>%{x}</i>',
    "entity": "&lt;script&gt; &amp; &#60;img src=x onerror=window.pwned=1&#62;",
    "markdown": (
        "[here](javascript:window.pwned=1) ![x](http://flightlog.invalid/seen.png) **bold** | a | b |\n|---|"
    ),
    "markup": "[red]red[/red] [link=http://flightlog.invalid]here[/link] [/] [@click=app.quit]quit[/]",
    "path": "../../../../../../etc/passwd",
    "encoded path": "..%2f..%2f..%2fetc%2fpasswd%00",
    "other path": "C:\\..\\..\\windows\\system32\\con",
    "query": "'; DROP TABLE tasks; -- \" OR 1=1",
    "shell": "$(touch pwned) `touch pwned`; touch pwned | tee pwned",
    "terminal": "\x1b[31mred\x1b[2J\x1b]0;title\x07\x1b]8;;http://flightlog.invalid\x1b\\here\x1b]8;;\x1b\\",
    "control": "a\x00b\x01c\x08d\x0be\x0cf\x1fg\x7fh\x85i\u2028j\u2029k\r\nl\tm",
    "direction": "\u202egpj.exe\u202c \u2066\u2067x\u2069 \u200f\u200b\ufeff",
    "marks": "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f",
    "wide": "\U0001f469\u200d\U0001f469\u200d\U0001f467 \ufdfd \U0010ffff \uffff",
    "number": "NaN",
    "nothing": "",
    "blank": " \t ",
    "prototype": "__proto__",
}
"""What a text may try, by what it tries on."""

PROJECT = " ".join(TRICKS[name] for name in ("script", "path", "terminal", "markup"))
_LABEL = "<img src=x onerror=window.pwned=1>\"'{{7*7}}#%2e%2e%2f?a=b&c=..[red]$(id);*"
RUN_ID = f"run-20260520T035200Z-{_LABEL}-0bad0bad"
"""Its name is as bad as a folder's name can be."""
EVERYTHING = " ".join(TRICKS.values())
LARGEST = 2**63 - 1
STEPS = 8
"""Attempts of each task name."""


def long_text(size: int) -> str:
    """A text of so many bytes, made of attacks and of one unbroken word."""
    opening = EVERYTHING + " "
    return (opening + "x" * size)[:size] if size > len(opening.encode()) else "x" * size


def hostile_run(runs_dir: Path, *, name_bytes: int = 10_000, run_id: str | None = None) -> Path:
    """Write the run and give its path. One task, worker, host, span, tag, argument, error, traceback and
    artifact is a text of `name_bytes`.

    With `run_id`, that is what `run.json` calls the run, whatever its folder is called: `../../etc/passwd`,
    say.
    """
    long = long_text(name_bytes)
    path = make_run(
        runs_dir,
        _events(long),
        project=_LABEL,
        token="0bad0bad",
        status="failed",
        end_time=at(60),
        duration_s=60.0,
        tasks_submitted=LARGEST,
        tasks_completed=len(TRICKS),
        tasks_failed=-1,
        host=TRICKS["image"],
        target=TRICKS["script"],
        provider=TRICKS["markup"],
        command=["python", *TRICKS.values()],
        cwd=TRICKS["path"],
        python=TRICKS["figure"],
        error=EVERYTHING,
        git_commit=TRICKS["image"],
        git_dirty=True,
        tags={trick: trick for trick in TRICKS.values()} | {"long": long},
        manifest_hash=TRICKS["end of script"],
        signal=TRICKS["terminal"],
        exit_code=-LARGEST,
        trace_id=TRICKS["script"],
        span_id=TRICKS["image"],
        flightlog_version=TRICKS["script"],
        adopted=Adopted(
            kind=TRICKS["script"],
            title=TRICKS["image"],
            source=TRICKS["path"],
            digest=TRICKS["code"],
            kept={TRICKS["script"]: 1},
            dropped={TRICKS["image"]: 2},
            notes=[EVERYTHING],
            problems=[EVERYTHING],
        ),
    )
    info = read_document(path / layout.RUN, layout.RunInfo).value
    assert info is not None
    info.project, info.run_id = PROJECT, path.name if run_id is None else run_id
    (path / layout.RUN).write_bytes(msgspec.json.encode(info))
    (path / layout.ENVIRONMENT).write_bytes(msgspec.json.encode(_environment(long)))
    (path / f"user.{TRICKS['image'].replace('/', '')}.jsonl").write_text(
        json.dumps(
            {
                "event": f"user.{TRICKS['script']}",
                "timestamp": at(1),
                **dict.fromkeys(TRICKS.values(), EVERYTHING),
            }
        )
        + "\n"
    )
    with layout.stream_file(path, "tasks").open("a") as out:
        out.writelines(line + "\n" for line in _unreadable())
    write_checksums(path)
    return path


def _events(long: str) -> Iterator[Event]:
    """Every kind of event, each of its texts a trick, in the order of the streams."""
    names = [*TRICKS.values(), EVERYTHING]
    workers = [*TRICKS.values()]
    for number, worker in enumerate(workers):
        place: dict[str, Any] = {"worker": worker, "host": worker, "pid": number, "component": worker}
        yield WorkerLaunched(**place, timestamp=at(0), cpus=1e308, memory_bytes=LARGEST, gpus=2)
        yield WorkerReady(**place, timestamp=at(0.5), launch_s=0.5)
    for number, name in enumerate(names):
        for step in range(STEPS):
            yield from _task(name, f"{name[:200]}#{step}", workers[(number + step) % len(workers)], step)
    for number, worker in enumerate(workers):
        place = {"worker": worker, "host": worker, "pid": number, "component": worker}
        if number % 3 == 0:
            yield WorkerLost(**place, timestamp=at(55), reason=worker, exit_code=-9, signal=worker)
        else:
            yield WorkerRemoved(**place, timestamp=at(59), reason=worker, uptime_s=58.5)
        for second in (1.0, 20.0, 59.0):
            sample: dict[str, Any] = {
                "host": worker,
                "timestamp": at(second),
                "cpu_percent": 99.0,
                "interval_s": 1.0,
            }
            yield ResourceSample(
                **sample,
                scope="worker",
                worker=worker,
                pid=number,
                cpu_cores=0.5,
                cpu_s=second,
                rss_bytes=number * 10**9,
            )
            yield ResourceSample(
                **sample, scope="node", cpus=8.0, memory_used_bytes=LARGEST // 2, memory_total_bytes=LARGEST
            )
            yield ResourceSample(
                **sample,
                scope="gpu",
                gpu_index=number,
                gpu_uuid=worker,
                gpu_name=worker,
                gpu_percent=50.0,
                gpu_memory_used_bytes=10**10,
                gpu_memory_total_bytes=8 * 10**10,
                gpu_throttle_reasons=[worker],
            )
    for number, trick in enumerate(names):
        yield from _records(trick, number)
    yield from _long(long)


def _task(name: str, task_id: str, worker: str, step: int) -> Iterator[Event]:
    """A task's life; one of each eight fails, one is retried and then fails, one is cancelled, one never
    ends."""
    of: dict[str, Any] = {
        "task": name,
        "task_id": task_id,
        "component": worker,
        "trace_id": TRICKS["script"],
        "span_id": task_id,
        "parent_id": TRICKS["image"],
    }
    args: dict[str, Any] = {trick: trick for trick in TRICKS.values()} | {"step": step}
    start = 1.0 + 5.0 * step
    yield TaskSubmitted(
        **of, timestamp=at(start - 0.5), args=args, args_digest=TRICKS["path"], depends_on=[TRICKS["code"]]
    )
    yield TaskQueued(**of, timestamp=at(start - 0.4))
    yield TaskStarted(**of, timestamp=at(start), worker=worker, queue_s=0.5)
    if step == 7:
        return
    ended: dict[str, Any] = {
        "args": args,
        "worker": worker,
        "duration_s": 1.5 + step / 10,
        "queue_s": 0.5,
        "cpu_s": 1.0,
        "cpu_scope": "thread",
        "peak_rss_bytes": LARGEST,
        "rss_scope": "process",
        "read_bytes": LARGEST,
        "gpu_peak_bytes": LARGEST,
        "tags": {trick: trick for trick in TRICKS.values()},
        "nonfinite": {TRICKS["script"]: "nan"},
        "metrics": {TRICKS["script"]: 1e308, TRICKS["image"]: -1e308, TRICKS["figure"]: 5e-324, "loss": None},
    }
    when = at(start + 1.5 + step / 10)
    error: dict[str, Any] = {"error_type": name, "error_message": name, "fingerprint": name[:100]}
    if step == 4 and name == TRICKS["number"]:  # one is enough to be in every sum
        ended |= {"duration_s": 1e300, "queue_s": -1e300, "cpu_s": 1e308}
    if step == 5:
        yield TaskFailed(**of, **ended, **error, timestamp=when, exit_code=-LARGEST)
        yield _failure(name, task_id, worker, 1, at(start + 2.0))
    elif step == 6:
        yield TaskRetried(**of, timestamp=when, reason=name, delay_s=0.25)
        yield _failure(name, task_id, worker, 1, when)
        again = {**of, "attempt": 2}
        yield TaskStarted(**again, timestamp=at(start + 3), worker=worker, queue_s=0.5)
        if len(name) % 2:
            yield TaskCancelled(**again, **ended, timestamp=at(start + 5), reason=name)
        else:
            yield TaskFailed(**again, **ended, **error, timestamp=at(start + 5))
            yield _failure(name, task_id, worker, 2, at(start + 5))
    else:
        yield TaskCompleted(**of, **ended, timestamp=when, result_bytes=LARGEST)


def _failure(name: str, task_id: str, worker: str, attempt: int, when: str) -> Failure:
    trace = (
        f'Traceback (most recent call last):\n  File "{name}", line 1, in {name}\n    {name}\n{name}: '
        f"{name}\n"
    )
    return Failure(
        scope="task",
        error_type=name,
        message=name,
        traceback=trace,
        fingerprint=name[:100],
        task=name,
        task_id=task_id,
        attempt=attempt,
        worker=worker,
        span_id=name,
        signal=name,
        output_tail=name,
        timestamp=when,
    )


def _records(trick: str, number: int) -> Iterator[Event]:
    """Spans, cache, artifacts, cost, jobs and device memory, with this text wherever a text can stand."""
    second = 1.0 + number
    said = trick if trick.strip() else "x"
    tags = {trick: trick}
    common: dict[str, Any] = {"name": trick, "tags": tags, "trace_id": trick, "parent_id": TRICKS["image"]}
    yield SpanEvent(
        **common,
        span_id=f"{number}{trick[:100]}",
        metrics={trick: 1e308},
        status="error",
        duration_s=2.0,
        error_type=trick,
        error_message=trick,
        timestamp=at(second),
    )
    yield SpanOpened(**common, span_id=f"open {number}{trick[:100]}", elapsed_s=1e9, timestamp=at(second))
    for result in ("hit", "miss", "bypass"):
        yield CacheLookup(
            task=trick,
            result=result,
            key=trick,
            reason=trick,
            task_id=trick,
            span_id=trick,
            duration_s=0.001,
            size_bytes=LARGEST,
            timestamp=at(second),
        )
    yield Failure(
        scope="run",
        error_type=trick,
        message=trick,
        traceback=trick,
        fingerprint=trick[:100],
        timestamp=at(59),
    )
    yield ArtifactRecorded(
        name=trick,
        uri=trick,
        kind=trick,
        size_bytes=LARGEST,
        sha256=trick,
        task_id=trick,
        error=trick,
        metadata=tags,
        timestamp=at(second),
    )
    yield CostEstimate(
        item=trick,
        amount=1e308,
        currency=trick,
        provider=trick,
        rate=1e308,
        quantity=1e308,
        quantity_unit=trick,
        timestamp=at(second),
    )
    yield CostRates(
        currency=trick,
        source=trick,
        provider=trick,
        instance=trick,
        prices_of=trick,
        per_worker_hour=1e300,
        components={trick: {"cpus": 1e308, "memory_bytes": LARGEST, "gpus": trick}},
        timestamp=at(second),
    )
    yield ResourceRequest(task=trick, cpus=1e308, memory_bytes=LARGEST, timestamp=at(second))
    job: dict[str, Any] = {
        "job_id": trick,
        "scheduler": trick,
        "cluster": trick,
        "name": trick,
        "user": trick,
        "partition": trick,
        "account": trick,
        "qos": trick,
        "nodes": trick,
        "walltime_s": 1e308,
    }
    yield JobStarted(
        **job, worker=trick, host=trick, submit_host=trick, submit_dir=trick, timestamp=at(second)
    )
    yield JobAccounted(
        **job,
        state=trick,
        attempt=1,
        reason=trick,
        signal=trick,
        submitted=trick,
        started=trick,
        ended=trick,
        elapsed_s=1e300,
        max_rss_bytes=LARGEST,
        timestamp=at(59),
    )
    used = 10**9 * (number + 1)
    yield DeviceMemory(
        schema_version=3,
        session_id=said,
        timestamp_ns=1779249121000000000 + number * 10**9,
        event_type=said,
        collector=said,
        sampling_interval_ms=100,
        pid=number,
        host=said,
        device_id=number,
        allocator_allocated_bytes=used,
        allocator_reserved_bytes=used,
        allocator_active_bytes=used,
        allocator_inactive_bytes=0,
        allocator_change_bytes=0,
        device_used_bytes=used,
        device_free_bytes=None,
        device_total_bytes=LARGEST,
        context=trick,
        metadata={trick: trick, "oom": True},
        job_id=said,
        rank=number,
        local_rank=number,
        world_size=len(TRICKS) + 2,
        timestamp=at(second),
    )


def _long(long: str) -> Iterator[Event]:
    """Each kind of text once as long as it was asked for, and one to a line: a line may be long, but not
    without bounds."""
    named: dict[str, Any] = {"task": long, "task_id": "long name"}
    yield TaskSubmitted(**named, timestamp=at(2), args={})
    yield TaskStarted(**named, timestamp=at(3), worker="w", queue_s=1.0)
    yield TaskCompleted(**named, timestamp=at(40), args={}, worker="w", duration_s=37.0, queue_s=1.0)
    elsewhere: dict[str, Any] = {"task": "on a worker with a long name", "task_id": "long worker"}
    yield TaskSubmitted(**elsewhere, timestamp=at(2), args={})
    yield TaskStarted(**elsewhere, timestamp=at(3), worker=long, queue_s=1.0)
    yield TaskCompleted(**elsewhere, timestamp=at(50), args={}, worker=long, duration_s=47.0, queue_s=1.0)
    failed: dict[str, Any] = {"task": "with a long error", "task_id": "long error"}
    yield TaskSubmitted(**failed, timestamp=at(2), args={"long": long})
    yield TaskFailed(
        **failed,
        timestamp=at(45),
        args={},
        worker="w",
        duration_s=1.0,
        error_type="ValueError",
        error_message=long,
    )
    about: dict[str, Any] = {"scope": "task", "fingerprint": "long", "timestamp": at(45), **failed}
    yield Failure(**about, error_type="ValueError", message=long, traceback=None)
    yield Failure(**about, error_type="ValueError", message="long traceback", traceback=long)
    yield Failure(**about, error_type=long, message="long type", traceback=None)
    yield WorkerLaunched(worker=long, host=None, pid=1, timestamp=at(0))
    yield WorkerLost(worker="on a long host", host=long, pid=1, reason="unknown", timestamp=at(58))
    yield SpanEvent(name=long, status="ok", duration_s=30.0, span_id="long name", timestamp=at(1))
    yield SpanEvent(
        name="x", tags={"long": long}, status="ok", duration_s=30.0, span_id="long tag", timestamp=at(1)
    )
    yield ResourceSample(scope="node", host=long, cpu_percent=1.0, timestamp=at(1))
    yield CacheLookup(task=long, result="hit", key="long", timestamp=at(1))
    yield ArtifactRecorded(name=long, uri="long", kind=None, size_bytes=1, sha256=None, timestamp=at(1))
    yield CostEstimate(item=long, amount=1.0, currency="EUR", timestamp=at(1))


def _environment(long: str) -> dict[str, Any]:
    texts = (
        "cwd host python git_commit git_branch platform kernel machine cpu_model python_implementation "
        "executable "
        "virtual_env git_remote"
    ).split()
    tricks = [*TRICKS.values()]
    found: dict[str, Any] = {name: tricks[number] for number, name in enumerate(texts)}
    every = {trick: trick for trick in tricks}
    return found | {
        "command": [*tricks, long],
        "problems": tricks,
        "packages": every,
        "variables": every,
        "git_dirty": True,
        "cpus_logical": LARGEST,
        "cpus_physical": -1,
        "cpus_usable": 0,
        "memory_bytes": LARGEST,
        "cgroup_cpus": 1e308,
        "cgroup_memory_bytes": LARGEST,
    }


def _unreadable() -> list[str]:
    """Lines that are no events, as strangers and torn writes leave them; each is skipped and counted."""
    line = {
        "event": "task_completed",
        "timestamp": at(3),
        "task": "x",
        "args": {},
        "worker": "x",
    }
    return [
        json.dumps(line | {"task_id": "x1", "task": "\ud800 alone", "duration_s": 1.0}),
        json.dumps(line | {"task_id": "x2", "duration_s": float("nan")}),
        json.dumps(line | {"task_id": "x3", "duration_s": 10**400}),
        json.dumps(line | {"task_id": "x4", "timestamp": TRICKS["script"], "duration_s": "<b>"}),
        '{"event":' * 200 + "1" + "}" * 200,
        TRICKS["script"],
        '{"event":"task_completed","timestamp":"2026-05-2',
    ]
