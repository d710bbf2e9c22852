"""The figures of device memory, whatever the sessions look like and wherever they stand."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest
from builders.device_sessions import ABLE, GIB, T0, S, event, sessions
from builders.runs import make_run
from hypothesis import given
from hypothesis import strategies as st

from flightlog.analyze.devices.report import devices_of_path, devices_of_run, devices_schema, only
from flightlog.analyze.devices.results import DeviceReport, Fragmentation, SessionUse
from flightlog.analyze.devices.track import Heights, Thinned
from flightlog.core.errors import UsageError
from flightlog.core.time import timestamp_of
from flightlog.devices import TelemetryReading, telemetry_event_to_dict
from flightlog.events import DeviceMemory, ResourceSample, SpanEvent
from flightlog.show.devices import devices_markdown, devices_text
from flightlog.show.terminal import ascii_text
from flightlog.store.completing import open_run

GOLDEN = Path(__file__).parents[2] / "golden" / "devices"


def figures(session: SessionUse) -> dict[str, object]:
    """What a file and a run say alike of a session."""
    unused, gap, curve = session.fragmentation, session.hidden, session.curve
    peaks = {
        "allocated": session.peak_allocated,
        "reserved": session.peak_reserved,
        "device_used": session.peak_device_used,
    }
    return {
        "events": session.events,
        "completed": session.status == "completed",
        "end_ns": session.end_ns,
        "capacity": session.capacity_bytes,
        "peaks": {
            name: peak and (peak.bytes, peak.at_ns, peak.after_s, peak.phase) for name, peak in peaks.items()
        },
        "unknown": session.unknown,
        "phases": {one.phase: msgspec.structs.astuple(one)[1:] for one in session.phases},
        "fragmentation": unused and msgspec.structs.astuple(unused),
        "warnings": session.warnings,
        "criticals": session.criticals,
        "curve": list(zip(curve.allocated_bytes, curve.reserved_bytes, curve.device_used_bytes, strict=True)),
        "hidden": gap and (gap.basis, gap.events, gap.median_bytes, gap.max_bytes),
    }


def by_session(report: DeviceReport) -> dict[object, dict[str, object]]:
    return {(one.rank, one.host, one.device_id, one.session_id): figures(one) for one in report.sessions}


def recorded(folder: Path, events: list[DeviceMemory], **info: object) -> DeviceReport:
    return devices_of_run(open_run(make_run(folder, events, **info)))


def known(one: DeviceMemory, name: str) -> int | None:
    """A counter, unless the event says that it does not know it, or its capacity is none."""
    if one.metadata.get("memory_capabilities", {}).get(f"supports_{name}") is False:
        return None
    value: int | None = getattr(one, f"{name}_bytes")
    return None if name == "device_total" and value == 0 else value


@given(sessions())
def test_counts_peaks_and_curves_are_those_of_the_events(tmp_path_factory, events):
    report = recorded(tmp_path_factory.mktemp("run"), events)
    assert report.events == len(events)
    for session in report.sessions:
        key = (session.session_id, session.device_id)
        mine = [one for one in events if (one.session_id, one.device_id) == key]
        columns = {name: [known(one, name) for one in mine] for name in ABLE}
        peaks = {name: [value for value in columns[name] if value is not None] for name in ABLE}
        kinds = [one.event_type for one in mine]
        assert (session.events, session.warnings, session.criticals) == (
            len(mine),
            kinds.count("warning"),
            kinds.count("critical"),
        )
        assert (session.status == "completed", session.end_ns) == ("stop" in kinds, mine[-1].timestamp_ns)
        assert session.capacity_bytes == max(peaks["device_total"], default=None)
        assert session.unknown == [name for name in ABLE if not peaks[name]]
        for name, peak in (
            ("allocator_reserved", session.peak_reserved),
            ("device_used", session.peak_device_used),
        ):
            assert (peak and peak.bytes) == max(peaks[name], default=None)
            assert peak is None or peak.at_ns == mine[columns[name].index(peak.bytes)].timestamp_ns
        assert session.curve.allocated_bytes == columns["allocator_allocated"]
        assert session.curve.reserved_bytes == columns["allocator_reserved"]
        assert session.curve.device_used_bytes == columns["device_used"]


def test_a_phase_is_repeated_where_it_is_entered_anew(tmp_path):
    """Not where it goes on in the span that it was left in; its number, not its name, may change."""
    told = [
        *(("train", "a", 1), ("evaluate", "b", 4), ("train", "a", 2), ("train", "c", 5), (None, None, 5)),
        *(
            ("train", None, 6),
            ("step 1", None, 9),
            ("step 2", None, 8),
            ("sim[3]", None, 8),
            ("layer3", None, 8),
        ),
    ]
    events = [
        event(
            2.0**n,
            context=phase,
            allocator_allocated_bytes=held,
            metadata={} if span is None else {"span_id": span},
        )
        for n, (phase, span, held) in enumerate(told)
    ]
    [session] = recorded(tmp_path, events).sessions
    assert {
        one.phase: (one.repetitions, one.events, one.duration_s, one.peak_allocated_bytes, one.growth_bytes)
        for one in session.phases
    } == {
        "train": (3, 4, 1.0 + 4.0 + 8.0 + 32.0, 6, -2 + 3 + 1),
        "evaluate": (1, 1, 2.0, 4, 3),
        None: (1, 1, 16.0, 5, 0),
        "step #": (1, 2, 64.0 + 128.0, 9, 3 - 1),
        "sim[#]": (1, 1, 256.0, 8, 0),
        "layer3": (1, 1, 0.0, 8, 0),
    }


def test_fragmentation_is_what_the_allocator_held_and_did_not_use(tmp_path):
    held = [(50, 40, 5), (80, 60, 8), (100, 70, 10), (90, 45, 9), (0, 0, 0)]
    events = [
        event(
            n,
            allocator_reserved_bytes=reserved,
            allocator_allocated_bytes=allocated,
            allocator_inactive_bytes=inactive,
            device_total_bytes=100,
        )
        for n, (reserved, allocated, inactive) in enumerate(held)
    ]
    [session] = recorded(tmp_path, events).sessions
    assert session.fragmentation == Fragmentation(
        at_peak=0.3,
        inactive_at_peak=0.1,
        median=0.275,  # of 20, 25, 30 and 50 %
        most_bytes=45,
        most_share=0.5,
        most_at_ns=T0 + 3 * S,
        tight_events=2,
        tight_first_ns=T0 + 2 * S,
    )


@pytest.mark.parametrize(
    ("sources", "used", "found"),
    [
        ([None, None, None], [10, 13, 12], ("assumed", 3, 2.0, 3)),
        ([None, None, None], [10, 10, 9], None),
        (["allocator"] * 3, [20, 20, 20], None),
        (["allocator", "driver", None], [20, 13, 30], ("driver", 1, 3.0, 3)),
    ],
    ids=["more than the allocator", "no more", "of the allocator", "some of the driver"],
)
def test_what_the_driver_counts_beyond_the_allocator_is_hidden(tmp_path, sources, used, found):
    events = [
        event(
            n,
            allocator_allocated_bytes=5,
            allocator_reserved_bytes=10,
            device_used_bytes=in_use,
            metadata={} if source is None else {"device_used_source": source},
        )
        for n, (source, in_use) in enumerate(zip(sources, used, strict=True))
    ]
    gap = recorded(tmp_path, events).sessions[0].hidden
    assert (gap and (gap.basis, gap.events, gap.median_bytes, gap.max_bytes)) == found


def test_another_process_of_ours_holds_memory_from_its_first_event_until_it_stopped(tmp_path):
    """It holds 5 between 1 s and 3 s; from then on nothing, and at 2 s it does not say how much."""
    driver = {"device_used_source": "driver", "device_uuid": "GPU-1"}
    silent = {**driver, "memory_capabilities": {"supports_allocator_reserved": False}}
    ours = [
        event(n, allocator_reserved_bytes=10, device_used_bytes=20, metadata=driver)
        for n in (0.5, 1.5, 2.5, 4.5)
    ]
    other = [
        event(
            n,
            session_id="s-1",
            rank=1,
            pid=8,
            event_type=kind,
            allocator_reserved_bytes=5,
            device_used_bytes=20,
            metadata=metadata,
        )
        for n, kind, metadata in ((1, "sample", driver), (2, "sample", silent), (3, "stop", driver))
    ]
    gap = recorded(tmp_path, [*ours, *other]).sessions[0].hidden
    assert (gap.events, gap.median_bytes, gap.max_bytes) == (3, 10.0, 10)


@given(sessions())
def test_a_file_in_any_order_says_the_same_as_the_run(tmp_path_factory, events):
    folder = tmp_path_factory.mktemp("file")
    once = [
        one
        for n, one in enumerate(events)
        if not n or one.timestamp_ns > events[n - 1].timestamp_ns or one.rank > events[n - 1].rank
    ]
    for one in once:
        one.device_total_bytes = None
    mixed = [telemetry_event_to_dict(one) for one in once]
    random.Random(1).shuffle(mixed)
    (folder / "mixed.jsonl").write_text("".join(json.dumps(one) + "\n" for one in mixed))
    assert by_session(devices_of_path(folder / "mixed.jsonl")) == by_session(recorded(folder, once))


@given(sessions())
def test_every_report_can_be_shown(tmp_path_factory, events):
    report = recorded(tmp_path_factory.mktemp("run"), events)
    text = ascii_text(devices_text(report, width=80))
    assert text.isascii()
    assert text.count("allocated memory over") + text.count("in use memory over") <= len(report.sessions)
    assert devices_markdown(report).startswith("# Device memory")


def test_a_file_from_back_to_front_says_the_same_as_the_run(tmp_path):
    events = [event(n, allocator_allocated_bytes=n * n % 97, context=f"step {n % 5}") for n in range(200)]
    lines = [json.dumps(telemetry_event_to_dict(one)) for one in reversed(events)]
    (tmp_path / "back.jsonl").write_text("\n".join(lines))
    assert by_session(devices_of_path(tmp_path / "back.jsonl")) == by_session(recorded(tmp_path, events))


@given(sessions())
def test_unknown_counters_of_schema_v4_are_unknown(tmp_path_factory, events):
    folder = tmp_path_factory.mktemp("v4")
    events.sort(key=lambda one: one.timestamp_ns)
    records = []
    for one in events:
        one.device_total_bytes = None
        denied = one.metadata.pop("memory_capabilities", {})
        record = telemetry_event_to_dict(one) | {"schema_version": 4}
        records.append(record | {f"{name.removeprefix('supports_')}_bytes": None for name in denied})
        one.metadata["memory_capabilities"] = denied
    (folder / "v4.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert by_session(devices_of_path(folder / "v4.jsonl")) == by_session(recorded(folder, events))


LEGACY = st.fixed_dictionaries(
    {"timestamp": st.integers(1, 50), "memory_allocated": st.integers(0, 100)},
    optional={
        "type": st.sampled_from(["sample", "allocation", "stop"]),
        "memory_reserved": st.integers(0, 100),
        "device": st.sampled_from(["cuda:0", "cuda:1", "/gpu:0", "cpu"]),
        "total_memory": st.integers(100, 120),
        "message": st.sampled_from(["train", "step 1", "step 2"]),
        "metadata_rank": st.integers(0, 1),
        "session_id": st.sampled_from(["a", "b"]),
    },
)


@given(st.lists(LEGACY, min_size=1, max_size=20, unique_by=lambda one: one["timestamp"]))
def test_files_of_old_say_what_their_events_say(tmp_path_factory, records):
    folder = tmp_path_factory.mktemp("legacy")
    path = folder / "legacy.json"
    path.write_text(json.dumps([{**one, "metadata_world_size": 2} for one in records]))
    today = [json.dumps(telemetry_event_to_dict(one)) for one in TelemetryReading(path)]
    (folder / "today.jsonl").write_text("\n".join(today))
    assert by_session(devices_of_path(path)) == by_session(devices_of_path(folder / "today.jsonl"))


@given(sessions())
def test_durations_and_growths_of_phases_add_up_to_the_session(tmp_path_factory, events):
    for session in recorded(tmp_path_factory.mktemp("run"), events).sessions:
        assert sum(one.events for one in session.phases) == session.events
        assert sum(round(one.duration_s * S) for one in session.phases) == session.end_ns - session.start_ns


def test_a_hand_example_reads_as_expected(tmp_path):
    driver = {"device_used_source": "driver"}
    report = recorded(
        tmp_path,
        [
            event(0, event_type="start", metadata=driver),
            event(
                1,
                context="train",
                allocator_allocated_bytes=40 * GIB,
                allocator_reserved_bytes=60 * GIB,
                device_used_bytes=62 * GIB,
                metadata=driver,
            ),
            event(
                3,
                context="evaluate",
                allocator_allocated_bytes=50 * GIB,
                allocator_reserved_bytes=75 * GIB,
                device_used_bytes=78 * GIB,
                metadata=driver,
            ),
            event(4, event_type="stop", metadata=driver),
        ],
    )
    [session] = report.sessions
    assert (session.status, session.duration_s, session.capacity_bytes) == ("completed", 4.0, 80 * GIB)
    assert [(one.phase, one.duration_s, one.growth_bytes) for one in session.phases] == [
        ("evaluate", 1.0, 10 * GIB),
        ("train", 2.0, 39 * GIB),
        (None, 1.0, -49 * GIB),
    ]
    assert (session.fragmentation.at_peak, session.fragmentation.tight_events) == (1 / 3, 1)
    assert (session.hidden.basis, session.hidden.median_bytes, session.hidden.max_bytes) == (
        "driver",
        1.5 * GIB,
        3 * GIB,
    )
    assert report.advice == [
        "The allocator held 94% of the device while 25.0 GiB lay unused: fragmentation may end the run "
        "before memory does. Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        "The peak of 50.0 GiB allocated (62% of the device) was reached 3.0s in, in `evaluate`; 33% of what "
        "the allocator held was unused at its own peak.",
    ]


def test_the_peak_between_samples_counts_for_the_phase_in_which_it_was_seen(tmp_path):
    told = [30, 30, 70, 70]
    phases = ["load", "load", "train", "evaluate"]
    events = [
        event(n, context=phase, metadata={"peak_allocated_bytes": peak * GIB})
        for n, (phase, peak) in enumerate(zip(phases, told, strict=True))
    ]
    [session] = recorded(tmp_path, events).sessions
    assert (session.peak_allocated.bytes, session.peak_allocated.after_s, session.peak_allocated.phase) == (
        70 * GIB,
        2.0,
        "train",
    )
    assert {one.phase: one.peak_allocated_bytes for one in session.phases} == {
        "load": GIB,
        "train": 70 * GIB,
        "evaluate": GIB,
    }


def test_memory_of_our_other_processes_on_the_device_is_not_hidden(tmp_path):
    driver = {"device_used_source": "driver", "device_uuid": "GPU-1"}
    events = [
        event(
            n + rank / 10,
            rank=rank,
            local_rank=rank,
            world_size=2,
            session_id=f"s-{rank}",
            pid=rank,
            allocator_reserved_bytes=10 * GIB,
            device_used_bytes=21 * GIB,
            metadata=driver,
        )
        for n in range(3)
        for rank in range(2)
    ]
    first, second = recorded(tmp_path, events).sessions
    assert (first.hidden.max_bytes, first.hidden.median_bytes, first.hidden.shared_with) == (
        11 * GIB,
        GIB,
        ["s-1"],
    )
    assert (second.hidden.max_bytes, second.hidden.shared_with) == (GIB, ["s-0"])


def test_a_gap_that_grows_is_told(tmp_path):
    driver = {"device_used_source": "driver"}
    events = [event(n, device_used_bytes=3 * GIB + n * (64 << 20), metadata=driver) for n in range(60)]
    report = recorded(tmp_path, events)
    assert report.sessions[0].hidden.growing
    assert "and it grew by" in report.advice[0]


def test_the_hosts_memory_has_no_gap(tmp_path):
    events = [event(n, device_id=-1, metadata={"device_used_source": "driver"}) for n in range(3)]
    assert recorded(tmp_path, events).sessions[0].hidden is None


def test_counters_that_a_recording_denies_are_unknown_and_not_zero(tmp_path):
    denied = {
        "memory_capabilities": {"supports_allocator_allocated": False, "supports_allocator_reserved": False}
    }
    events = [
        event(n, allocator_allocated_bytes=0, allocator_reserved_bytes=0, metadata=denied) for n in range(3)
    ]
    [session] = recorded(tmp_path, events).sessions
    assert session.unknown == [
        "allocator_allocated",
        "allocator_reserved",
        "allocator_inactive",
        "device_free",
    ]
    assert (session.peak_allocated, session.peak_reserved, session.fragmentation, session.hidden) == (
        None,
    ) * 4
    assert session.peak_device_used.bytes == 3 * GIB


def test_the_statuses_of_sessions_are_those_of_the_run_where_none_stopped(tmp_path):
    found = [
        recorded(tmp_path / status, [event(0)], status=status).sessions[0].status
        for status in ("completed", "crashed", "interrupted")
    ]
    assert found == ["incomplete", "interrupted", "interrupted"]


def test_gpus_are_told_as_the_driver_saw_them(tmp_path):
    samples = [
        ResourceSample(
            scope="gpu",
            host="node-1",
            cpu_percent=None,
            gpu_index=0,
            gpu_uuid="GPU-1",
            interval_s=took,
            gpu_percent=busy,
            gpu_memory_used_bytes=used,
            gpu_memory_total_bytes=100,
            gpu_power_w=power,
        )
        for took, busy, used, power in [
            (None, 0.0, 10, None),
            (1.0, 50.0, 30, 200.0),
            (2.0, 100.0, 20, 500.0),
        ]
    ]
    [gpu] = recorded(tmp_path, [event(0), *samples]).gpus
    assert msgspec.structs.astuple(gpu) == ("node-1", 0, "GPU-1", None, 3, 30, 100, 62.5, 100.0, 400.0, 500.0)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("export-v2.json", [(0, 0, "incomplete", 6)]),
        ("export-v3.json", [(0, 0, "completed", 30)]),
        ("legacy.json", [(0, 0, "incomplete", 3), (1, 1, "incomplete", 5)]),
        ("sink-rank0", [(0, 0, "completed", 30)]),
        ("sink-rank1", [(1, 1, "running", 30)]),
    ],
)
def test_recordings_of_other_tools_are_read(name, found):
    report = devices_of_path(GOLDEN / name)
    assert [(one.rank, one.device_id, one.status, one.events) for one in report.sessions] == found


def test_of_a_long_session_a_bounded_part_stays(tmp_path):
    events = [event(n / 10, allocator_allocated_bytes=n, context=f"phase{n % 400}") for n in range(10_000)]
    [session] = recorded(tmp_path, events).sessions
    assert len(session.curve.after_s) == 157
    assert (session.peak_allocated.bytes, max(session.curve.allocated_bytes)) == (9_999, 9_999)
    assert (len(session.phases), session.phases_left_out) == (256, 144)


def test_thinning_keeps_every_so_manieth_row():
    for count in range(100):
        thinned = Thinned(8)
        for n in range(count):
            thinned.add(n)
        assert thinned.rows == list(range(0, count, thinned.stride))
        assert len(thinned.rows) <= 8
        assert thinned.stride == 1 or len(thinned.rows) >= 4


def test_heights_keep_the_highest_of_each_group():
    draw = random.Random(2)
    for count in range(1, 100):
        rows = [(n, (draw.choice([None, draw.randrange(50)]),)) for n in range(count)]
        heights = Heights(8)
        for row in rows:
            heights.add(*row)
        groups = [rows[n : n + heights.size] for n in range(0, count, heights.size)]
        assert heights.groups == [
            (group[0][0], [max((v for _, (v,) in group if v is not None), default=None)]) for group in groups
        ]
        assert len(groups) <= 8


def test_a_run_without_device_memory_says_how_to_record_it(tmp_path):
    with pytest.raises(
        UsageError, match=r"recorded no device memory; record it with `flightlog.track_device_memory\(\)`"
    ):
        recorded(tmp_path, [])


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"a": 1}'])
def test_a_file_without_events_is_an_error(tmp_path, text):
    (tmp_path / "none.json").write_text(text)
    with pytest.raises(UsageError, match=r"none\.json"):
        devices_of_path(tmp_path / "none.json")


def test_phases_that_are_spans_are_counted_and_timed_by_their_spans(tmp_path):
    """Samples each second see one of ten evaluations of a tenth of a second."""
    samples = [event(n, context="evaluate" if n == 5 else "train") for n in range(11)]
    spans = [
        SpanEvent(
            timestamp=timestamp_of(T0 + round((n + since) * S)),
            name=name,
            status="ok",
            duration_s=lasts,
            trace_id="",
            span_id=f"{name}{n}",
            parent_id=None if name == "train" else f"train{n}",
        )
        for n in range(10)
        for name, since, lasts in (("train", 0.0, 1.0), ("evaluate", 0.45, 0.1))
    ]
    [session] = recorded(tmp_path, [*samples, *spans]).sessions
    assert {one.phase: (one.repetitions, round(one.duration_s, 6)) for one in session.phases} == {
        "train": (10, 9.0),
        "evaluate": (10, 1.0),
    }


def test_ranks_and_phases_are_picked(tmp_path):
    events = [
        event(n, rank=rank, world_size=2, local_rank=rank, session_id=f"s-{rank}", context=phase)
        for rank in range(2)
        for n, phase in enumerate(["train", "evaluate", "train"])
    ]
    report = recorded(tmp_path, events)
    picked = only(report, ranks=[1], phase="evaluate")
    assert [(one.rank, [phase.phase for phase in one.phases]) for one in picked.sessions] == [
        (1, ["evaluate"])
    ]
    with pytest.raises(UsageError, match=r"there is no rank 7 .*; its ranks are 0, 1"):
        only(report, ranks=[1, 7])
    with pytest.raises(UsageError, match=r"there is no phase 'tain' .*; its phases are evaluate, train"):
        only(report, phase="tain")


def test_instances_of_a_partitioned_gpu_are_told_apart(tmp_path):
    samples = [
        ResourceSample(
            scope="gpu",
            host="node-1",
            cpu_percent=None,
            gpu_index=0,
            gpu_uuid="GPU-1",
            gpu_mig=mig,
            gpu_memory_used_bytes=used,
        )
        for mig, used in (("MIG-1a2b3c4d-ffff", 10), ("MIG-5e6f7a8b-ffff", 30))
    ]
    report = recorded(tmp_path, [event(0), *samples])
    assert [(gpu.gpu_mig, gpu.memory_peak_bytes) for gpu in report.gpus] == [
        ("MIG-1a2b3c4d-ffff", 10),
        ("MIG-5e6f7a8b-ffff", 30),
    ]
    assert "node-1:0/MIG-5e6f7a8b " in devices_text(report)


def test_the_json_reads_back_and_its_schema_names_every_field(tmp_path):
    report = recorded(tmp_path, [event(0), event(1, context="a")])
    assert msgspec.json.decode(msgspec.json.encode(report), type=DeviceReport) == report
    schema = devices_schema()
    assert set(schema["$defs"]["SessionUse"]["properties"]) == set(SessionUse.__struct_fields__)


def test_times_are_those_of_the_events(tmp_path):
    [session] = recorded(tmp_path, [event(2), event(5)]).sessions
    assert (session.start_ns, session.end_ns) == (T0 + 2 * S, T0 + 5 * S)
