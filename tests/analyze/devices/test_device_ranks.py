"""Ranks on one time line: who is late, who takes long, who holds more; and by which clocks that is known."""

from __future__ import annotations

from pathlib import Path

import msgspec
from builders.device_sessions import GIB, MIB, S, event, of_rank
from builders.runs import make_run

from flightlog.analyze.devices.report import devices_of_run
from flightlog.analyze.devices.results import Alignment, DeviceReport, Straggler
from flightlog.events import DeviceMemory
from flightlog.store.completing import open_run


def recorded(folder: Path, events: list[DeviceMemory]) -> DeviceReport:
    return devices_of_run(open_run(make_run(folder, events)))


def ranks(late=(0.0, 0.0, 0.0, 0.0), long=(10.0,) * 4, memory=(5.0,) * 4, offsets=(None,) * 4, hosts=1):
    """Four ranks that load from their start for `late` seconds more than one, then train for `long`
    seconds."""
    events = []
    for rank in range(4):
        offset = offsets[rank] or 0.0
        metadata = {} if offsets[rank] is None else {"clock_offset_ns": round(offset * S)}
        begin = 1 + late[rank]
        for after, phase in [(0.0, "load"), (begin, "train"), (begin + long[rank], None)]:
            events.append(
                of_rank(
                    rank,
                    100 + after + offset,
                    memory[rank],
                    context=phase,
                    metadata=metadata,
                    host=f"n{rank % hosts}",
                )
            )
    return events


def test_a_rank_that_begins_late_is_told_and_the_others_are_not(tmp_path):
    report = recorded(tmp_path, ranks(late=(0, 0, 3, 0.05)))
    assert report.stragglers == [
        Straggler(rank=2, kind="late", phase="train", value=report.stragglers[0].value, median=0.0),
        Straggler(rank=2, kind="long", phase="load", value=4.0, median=1.025),
    ]
    assert round(report.stragglers[0].value, 3) == 2.975
    assert report.advice[0] == "Rank 2 began `train` 3.0s after the others."


def test_a_rank_that_takes_long_and_one_that_holds_more_are_told(tmp_path):
    report = recorded(tmp_path, ranks(long=(10, 10.5, 10.2, 15), memory=(5, 9, 5, 5)))
    assert [(one.rank, one.kind, one.phase, one.value) for one in report.stragglers] == [
        (1, "memory", None, 9 * GIB),
        (3, "long", "train", 15.0),
    ]


def test_ranks_alike_are_no_stragglers(tmp_path):
    report = recorded(
        tmp_path, ranks(late=(0, 0.02, 0.05, 0.1), long=(10, 10.1, 9.9, 10.3), memory=(5, 5.1, 5.2, 5))
    )
    assert report.stragglers == []


def test_ranks_are_aligned_by_clock_offsets_where_all_have_one(tmp_path):
    report = recorded(tmp_path, ranks(late=(0, 0, 0, 2), offsets=(None, 50.0, -20.0, 0.25), hosts=4))
    assert report.alignment == Alignment(basis="clock_offset", hosts=4, unaligned=[])
    assert [(one.rank, one.kind, one.phase) for one in report.stragglers] == [
        (3, "late", "train"),
        (3, "long", "load"),
    ]


def test_where_an_offset_is_missing_the_clocks_of_the_hosts_count_and_that_is_said(tmp_path):
    report = recorded(tmp_path, ranks(offsets=(None, 50.0, None, None), hosts=2))
    assert report.alignment == Alignment(basis="wall_clock", hosts=2, unaligned=[2, 3])
    assert [(one.rank, one.kind) for one in report.stragglers] == [(1, "late"), (1, "late")]


def test_first_samples_are_never_taken_for_the_same_moment(tmp_path):
    """A rank that starts ten seconds late is late, although its own first sample is at its own second 0."""
    events = [
        of_rank(rank, (10 if rank == 2 else 0) + n, 1, context="train") for rank in range(4) for n in range(3)
    ]
    assert [(one.rank, one.value) for one in recorded(tmp_path, events).stragglers] == [(2, 10.0)]


def test_one_rank_needs_no_alignment_and_two_have_no_straggler(tmp_path):
    assert recorded(tmp_path / "one", [event(0), event(1)]).alignment is None
    pair = [one for one in ranks(late=(0, 9, 0, 0)) if one.rank < 2]
    report = recorded(tmp_path / "two", pair)
    assert (report.alignment, report.stragglers) == (Alignment(basis="wall_clock", hosts=1, unaligned=[]), [])


def test_a_rank_of_several_sessions_counts_once(tmp_path):
    events = ranks()
    again = [
        msgspec.structs.replace(one, session_id="again", timestamp_ns=one.timestamp_ns + 50 * S)
        for one in events
        if one.rank == 1
    ]
    assert recorded(tmp_path, [*events, *again]).stragglers == []


def test_small_differences_of_memory_are_not_worth_a_word(tmp_path):
    tiny = [
        of_rank(rank, n, 0, allocator_allocated_bytes=(30 if rank == 1 else 1) * MIB)
        for rank in range(4)
        for n in range(2)
    ]
    assert recorded(tmp_path, tiny).stragglers == []
