"""Out of memory, explained: what was asked for, why it was not there, and which rank rose first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.device_sessions import GIB, MIB, T0, S, event, of_rank
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.devices.oom import causes
from flightlog.analyze.devices.report import devices_of_run
from flightlog.analyze.devices.results import DeviceReport, Leak
from flightlog.events.devices.oom_message import Request, parse_request
from flightlog.store.completing import open_run

NEW = (
    "CUDA out of memory. Tried to allocate 22.50 GiB. GPU 0 has a total capacity of 31.50 GiB of which "
    "12.75 GiB is free. Process 1234 has 1.50 GiB memory in use. Process 77 has 512.00 MiB memory in use. "
    "Including non-PyTorch memory, this process has 18.75 GiB memory in use. Of the allocated memory 9.25 "
    "GiB is allocated by PyTorch, and 9.50 GiB is reserved by PyTorch but unallocated. If reserved but "
    "unallocated memory is large try setting …"
)
OLD = (
    "CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 11.25 GiB total capacity; 10.50 GiB already "
    "allocated; 24.75 MiB free; 10.75 GiB reserved in total by PyTorch)"
)


def gib(number: float) -> int:
    return round(number * GIB)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            NEW,
            Request(
                tried_bytes=gib(22.5),
                total_bytes=gib(31.5),
                free_bytes=gib(12.75),
                process_bytes=gib(18.75),
                allocated_bytes=gib(9.25),
                unallocated_bytes=gib(9.5),
                other_processes_bytes=gib(2),
            ),
        ),
        (
            NEW.replace("capacity", "capacty"),
            Request(
                tried_bytes=gib(22.5),
                total_bytes=gib(31.5),
                free_bytes=gib(12.75),
                process_bytes=gib(18.75),
                allocated_bytes=gib(9.25),
                unallocated_bytes=gib(9.5),
                other_processes_bytes=gib(2),
            ),
        ),
        (
            OLD,
            Request(
                tried_bytes=128 * MIB,
                total_bytes=gib(11.25),
                free_bytes=round(24.75 * MIB),
                allocated_bytes=gib(10.5),
                unallocated_bytes=gib(0.25),
            ),
        ),
        (
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
            Request(tried_bytes=16 * GIB),
        ),
        (
            "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16.00GiB.",
            Request(tried_bytes=16 * GIB),
        ),
        (
            "MPS backend out of memory (MPS allocated: 17.50 GB, other allocations: 1.00 MB, max allowed: "
            "18.00 GB). Tried to allocate 600.00 MB on private pool.",
            Request(tried_bytes=600 * MIB, allocated_bytes=gib(17.5), total_bytes=gib(18)),
        ),
        ("boom", Request()),
        (None, Request()),
    ],
)
def test_messages_of_frameworks_are_read(message, found):
    assert parse_request(message) == found


@given(st.integers(1, 10**6), st.sampled_from([("KiB", 10), ("MiB", 20), ("GiB", 30)]))
def test_sizes_are_read_to_the_byte(hundredths, unit):
    name, power = unit
    text = f"Tried to allocate {hundredths // 100}.{hundredths % 100:02d} {name}. "
    assert parse_request(text).tried_bytes == hundredths * (1 << power) // 100


LEAK = Leak(
    phase="step",
    counter="allocated",
    repetitions=40,
    tested=36,
    bytes_per_repetition=GIB / 2,
    growth_bytes=18.0 * GIB,
    chance=1e-9,
    repetition_s=1.0,
    full_in_s=0.0,
)


@pytest.mark.parametrize(
    ("request_", "leaks", "kinds"),
    [
        ({"tried": 90, "free": 10}, [], ["impossible"]),
        ({"tried": 5, "free": 1, "unallocated": 20}, [], ["fragmentation"]),
        ({"tried": 5, "free": 1, "unallocated": 1}, [], ["full"]),
        ({"tried": 5, "free": 1, "process": 30}, [], ["other_process"]),
        ({"tried": 5, "free": 1, "process": 78}, [], ["full"]),
        ({"tried": 30, "free": 20}, [], ["large_allocation"]),
        ({"tried": 5, "free": 1}, [LEAK], ["leak"]),
        ({"tried": 60, "free": 1}, [LEAK], ["large_allocation"]),
        (
            {"tried": 5, "free": 1, "unallocated": 20, "process": 30},
            [LEAK],
            ["leak", "fragmentation", "other_process"],
        ),
        ({"tried": 5, "free": 4, "unallocated": 2}, [], ["full"]),
        ({"free": 1}, [], ["unknown"]),
    ],
)
def test_what_explains_it_follows_from_the_figures(request_, leaks, kinds):
    request = Request(**{f"{name}_bytes": value * GIB for name, value in request_.items()})
    assert [cause.kind for cause in causes(request, leaks, 80 * GIB)] == kinds


def bundle(run: Path, number: int, **said: object) -> None:
    folder = run / "oom" / f"{number}-20260520T035201Z"
    folder.mkdir(parents=True)
    (folder / "bundle.json").write_text(json.dumps(said))


def four_ranks() -> list:
    """Rank 2 rises first, twelve seconds before it runs out at second 20; rank 1 rises two seconds before."""
    events = []
    for rank in range(4):
        for n in range(21):
            level = {1: 10 + 8 * max(0, n - 18), 2: 10 + 5 * max(0, n - 8)}.get(rank, 10)
            events.append(of_rank(rank, n, level, context="train"))
    events.append(
        of_rank(
            2,
            20,
            70,
            event_type="error",
            context="backward",
            metadata={
                "message": NEW,
                "error_type": "OutOfMemoryError",
                "span_path": "epoch/train/backward",
                "oom": True,
            },
        )
    )
    return events


def test_an_error_event_is_explained_with_the_rank_that_rose_first(tmp_path):
    report = devices_of_run(open_run(make_run(tmp_path, four_ranks())))
    [out] = report.out_of_memory
    assert (out.rank, out.phase, out.span_path, out.after_s, out.bundle) == (
        2,
        "backward",
        ["epoch", "train", "backward"],
        20.0,
        None,
    )
    assert out.causes[0].kind == "large_allocation"
    assert [(rise.rank, rise.from_bytes, rise.to_bytes, rise.before_s) for rise in out.rises] == [
        (2, 15 * GIB, 70 * GIB, 11.0),
        (1, 10 * GIB, 26 * GIB, 2.0),
    ]
    assert report.advice[:2] == [
        "Rank 2 ran out of memory 20.0s in, in `epoch > train > backward`, asking for 22.5 GiB. One "
        "allocation of 22.5 GiB was 71% of the device. Try a smaller batch, or the same work in pieces.",
        "Rank 2 was the first to rise before that, by 55.0 GiB, 11.0s before.",
    ]


def test_a_bundle_and_its_event_are_one(tmp_path):
    run = make_run(tmp_path, four_ranks())
    bundle(
        run,
        1,
        message=NEW,
        time_ns=T0 + 20 * S + 5,
        session_id="s-2",
        rank=2,
        device_id=0,
        spans=[{"name": "epoch"}],
        context="train",
    )
    [out] = devices_of_run(open_run(run)).out_of_memory
    assert (out.bundle, out.rank, out.phase, out.span_path) == (
        "oom/1-20260520T035201Z",
        2,
        "train",
        ["epoch"],
    )


def test_offsets_of_clocks_move_the_rises(tmp_path):
    events = four_ranks()
    for one in events:
        if one.rank == 1:
            one.timestamp_ns += 100 * S
        if one.rank:
            one.metadata = {**one.metadata, "clock_offset_ns": 100 * S if one.rank == 1 else 0}
    [out] = devices_of_run(open_run(make_run(tmp_path, events))).out_of_memory
    assert [(rise.rank, rise.before_s) for rise in out.rises] == [(2, 11.0), (1, 2.0)]


def test_bundles_alone_are_enough_and_figures_of_their_own_fill_the_message(tmp_path):
    run = make_run(tmp_path, [])
    bundle(
        run,
        10,
        message="oom",
        requested_bytes=5,
        timestamp="2026-05-20T03:52:01.5Z",
        allocator={"allocated_bytes": 3, "reserved_bytes": 9},
        device={"free_bytes": 1, "total_bytes": 90},
        span_path="a/b",
        pid=1,
        host="h",
    )
    bundle(run, 2, message=OLD, rank=3)
    bundle(run, 3, reason="asked for", oom=False)
    bundle(run, 4)
    (run / "oom" / "5-x").mkdir()
    (run / "oom" / "5-x" / "bundle.json").write_text("{torn")
    (run / "oom" / "6-x").mkdir()
    (run / "oom" / "6-x" / "bundle.json").write_text("[1]")
    report = devices_of_run(open_run(run))
    assert [(out.bundle[:6], out.rank, out.request.tried_bytes) for out in report.out_of_memory] == [
        ("oom/10", None, 5),
        ("oom/4-", None, None),
        ("oom/2-", 3, 128 * MIB),
    ]
    first = report.out_of_memory[0]
    assert first.at_ns == 1_779_249_121_500_000_000
    assert (first.span_path, first.request) == (
        ["a", "b"],
        Request(tried_bytes=5, free_bytes=1, total_bytes=90, allocated_bytes=3, unallocated_bytes=6),
    )
    assert [problem.partition(" cannot be read: ")[0] for problem in report.problems] == [
        "oom/5-x/bundle.json",
        "oom/6-x/bundle.json",
    ]


def test_an_error_that_its_collector_calls_out_of_memory_is_one(tmp_path):
    reason = {"oom_reason": "torch_alloc_failed"}
    error = event(2.0, event_type="error", context="classified by its tracker", metadata=reason)
    report = devices_of_run(open_run(make_run(tmp_path, [event(1.0), error])))
    assert [one.message for one in report.out_of_memory] == ["torch_alloc_failed"]


def test_errors_that_are_no_oom_and_alerts_are_counted_only(tmp_path):
    kinds = ["warning", "critical", "critical", "error"]
    events = [
        event(n, event_type=kind, metadata={"message": "room 401 not found"}) for n, kind in enumerate(kinds)
    ]
    report: DeviceReport = devices_of_run(open_run(make_run(tmp_path, events)))
    [session] = report.sessions
    assert (session.warnings, session.criticals, session.errors, report.out_of_memory) == (1, 2, 1, [])
