"""Records from before there were versions: what becomes of each of their shapes."""

from __future__ import annotations

from uuid import NAMESPACE_URL, uuid5

import pytest
from builders.telemetry_records import BYTES, SAID
from hypothesis import given
from hypothesis import strategies as st

from flightlog.devices import stable_legacy_session_id, telemetry_event_from_record, telemetry_event_to_dict

PLAIN = {
    "schema_version": 3,
    "session_id": "mine",
    "timestamp_ns": 2_000_000_000,
    "event_type": "sample",
    "collector": "legacy.unknown",
    "sampling_interval_ms": 0,
    "pid": -1,
    "host": "unknown",
    "job_id": None,
    "rank": 0,
    "local_rank": 0,
    "world_size": 1,
    "device_id": -1,
    "allocator_allocated_bytes": 0,
    "allocator_reserved_bytes": 0,
    "allocator_active_bytes": None,
    "allocator_inactive_bytes": None,
    "allocator_change_bytes": 0,
    "device_used_bytes": 0,
    "device_free_bytes": None,
    "device_total_bytes": None,
    "context": None,
    "metadata": {},
}


def allocated(number: int) -> dict[str, int]:
    return {
        "allocator_allocated_bytes": number,
        "allocator_reserved_bytes": number,
        "device_used_bytes": number,
    }


CUDA, CPU = "stormlog.cuda_tracker", "stormlog.cpu_tracker"
SHAPES = [
    ({}, {}),
    ({"timestamp": 2}, {}),
    ({"timestamp": 1.5}, {"timestamp_ns": 1_500_000_000}),
    ({"timestamp": 9, "timestamp_ns": 3}, {"timestamp_ns": 3}),
    ({"type": "peak"}, {"event_type": "peak"}),
    ({"type": "peak", "event_type": "stop"}, {"event_type": "stop"}),
    ({"message": "m"}, {"context": "m"}),
    ({"message": "m", "context": ""}, {"context": ""}),
    ({"memory_allocated": 5}, {**allocated(5), "collector": CPU}),
    ({"memory_allocated": 5, "device_id": 0}, {**allocated(5), "device_id": 0, "collector": CUDA}),
    (
        {"memory_allocated": 5, "memory_reserved": 9},
        {**allocated(5), "allocator_reserved_bytes": 9, "collector": CPU},
    ),
    ({"memory_change": -4}, {"allocator_change_bytes": -4}),
    (
        {"memory_mb": 1.5},
        {**allocated(1_572_864), "device_id": 0, "collector": "stormlog.tensorflow.memory_tracker"},
    ),
    (
        {"memory_mb": 1, "device": "CPU:0"},
        {**allocated(1 << 20), "collector": "stormlog.tensorflow.memory_tracker"},
    ),
    ({"memory_mb": "1"}, {"device_id": 0, "collector": "stormlog.tensorflow.memory_tracker"}),
    ({"device_used_bytes": 7}, allocated(7)),
    ({"allocator_allocated_bytes": 3, "device_used_bytes": 7}, {**allocated(3), "device_used_bytes": 7}),
    (
        {"allocator_active_bytes": 1, "allocator_inactive_bytes": 2},
        {"allocator_active_bytes": 1, "allocator_inactive_bytes": 2},
    ),
    ({"device": "cuda:3"}, {"device_id": 3}),
    ({"device": "cuda"}, {}),
    ({"device": "cuda:x"}, {}),
    ({"device": "/gpu"}, {"device_id": 0}),
    ({"device": "/GPU:2"}, {"device_id": 2}),
    ({"device": "/device:CPU:0"}, {}),
    ({"device": 4}, {}),
    ({"total_memory": 10}, {"device_total_bytes": 10, "device_free_bytes": 10}),
    (
        {"device_total": 10, "memory_allocated": 4},
        {**allocated(4), "device_total_bytes": 10, "device_free_bytes": 6, "collector": CPU},
    ),
    (
        {"metadata_total_bytes": 10},
        {"device_total_bytes": 10, "device_free_bytes": 10, "metadata": {"total_bytes": 10}},
    ),
    ({"device_total_bytes": None, "total_memory": 10}, {}),
    ({"total_memory": 10, "device_free_bytes": None}, {"device_total_bytes": 10}),
    ({"metadata": {"pid": 3, "host": "h"}}, {"pid": 3, "host": "h", "metadata": {"pid": 3, "host": "h"}}),
    ({"pid": 4, "metadata": {"pid": 3}}, {"pid": 4, "metadata": {"pid": 3}}),
    ({"metadata": None, "metadata_a": 1}, {"metadata": {"a": 1}}),
    ({"metadata": {"a": 1, "b": 2}, "metadata_a": 3}, {"metadata": {"a": 3, "b": 2}}),
    (
        {"metadata_rank": 1, "metadata_world_size": 2, "metadata_job_id": "j"},
        {"rank": 1, "local_rank": 1, "world_size": 2, "job_id": "j"},
    ),
    ({"rank": 0, "metadata_rank": 1, "metadata_world_size": 2}, {"world_size": 2}),
    ({"metadata_session_id": "s"}, {"session_id": "s"}),
    ({"session_id": "t", "metadata_session_id": "s"}, {"session_id": "t"}),
    ({"collector": "c"}, {"collector": "c"}),
    ({"collector": " ", "backend": "MPS"}, {"collector": "stormlog.mps_tracker"}),
    ({"metadata_backend": "rocm"}, {"collector": "stormlog.rocm_tracker", "metadata": {"backend": "rocm"}}),
    ({"backend": "cpu"}, {"collector": CPU}),
    (
        {"backend": "xpu", "memory_allocated": 1, "device": "cuda:0"},
        {**allocated(1), "device_id": 0, "collector": CUDA},
    ),
    ({"unknown": 1}, {}),
]
REFUSED = [
    ({"metadata": 3}, "metadata must be an object when provided"),
    ({"timestamp_ns": None}, "timestamp_ns must be an integer"),
    ({"timestamp_ns": -1}, "timestamp_ns must be >= 0"),
    ({"device_id": "0"}, "device_id must be an integer"),
    ({"memory_allocated": 1.5}, "memory_allocated must be an integer"),
    ({"memory_allocated": -1}, "allocator_allocated_bytes must be >= 0"),
    ({"memory_mb": float("inf")}, "memory_mb must be a finite number"),
    ({"memory_reserved": None}, "memory_reserved must be an integer"),
    ({"memory_change": "1"}, "memory_change must be an integer"),
    ({"allocator_active_bytes": "x"}, "allocator_active_bytes must be an integer"),
    ({"total_memory": 1.0}, "total_memory must be an integer"),
    ({"total_memory": 1, "memory_allocated": 2}, "device_used_bytes cannot exceed device_total_bytes"),
    ({"type": None}, "event_type must be a non-empty string"),
    ({"type": 1}, "event_type must be a string"),
    ({"sampling_interval_ms": None}, "sampling_interval_ms must be an integer"),
    ({"pid": None}, "pid must be an integer"),
    ({"pid": -2}, "pid must be >= -1"),
    ({"metadata_pid": "1"}, "pid must be an integer"),
    ({"host": ""}, "host must be a non-empty string"),
    ({"metadata_host": 4}, "host must be a string"),
    ({"metadata_rank": 1}, "rank must be < world_size"),
    ({"local_rank": 1}, "local_rank must be < world_size"),
    ({"world_size": 0}, "world_size must be >= 1"),
    ({"message": 5}, "context must be a string"),
]
NO_TIME = "Legacy record is missing a valid timestamp"


@pytest.mark.parametrize(("given_fields", "expected"), SHAPES)
def test_a_shape_has_its_event(given_fields, expected):
    legacy = given_fields if "timestamp" in given_fields else {"timestamp_ns": 2_000_000_000, **given_fields}
    event = telemetry_event_from_record(legacy, default_session_id="mine")
    assert telemetry_event_to_dict(event) == {**PLAIN, **expected}


@pytest.mark.parametrize(("given_fields", "said"), REFUSED)
def test_a_value_that_cannot_be_is_named(given_fields, said):
    with pytest.raises(ValueError) as error:
        telemetry_event_from_record({"timestamp": 1, **given_fields})
    assert str(error.value) == said


@pytest.mark.parametrize(
    "time", [{}, *({"timestamp": odd} for odd in (None, "1", True, [], 1e400, float("nan"), 10**400))]
)
def test_a_record_without_a_time_is_refused(time):
    with pytest.raises(ValueError) as error:
        telemetry_event_from_record({"type": "sample", **time})
    assert str(error.value) == NO_TIME


def test_legacy_records_are_refused_on_request_and_others_are_not():
    with pytest.raises(ValueError) as error:
        telemetry_event_from_record({"timestamp": 1}, permissive_legacy=False)
    assert str(error.value) == "Legacy record conversion is disabled"


def test_defaults_are_the_callers():
    event = telemetry_event_from_record(
        {"timestamp": 1}, default_collector="c", default_sampling_interval_ms=5, default_session_id="s"
    )
    assert (event.collector, event.sampling_interval_ms, event.session_id) == ("c", 5, "s")


def test_a_session_is_made_of_time_host_and_process():
    event = telemetry_event_from_record({"timestamp": 1.5, "host": "h", "pid": 3})
    assert event.session_id == f"legacy-{uuid5(NAMESPACE_URL, '1.5::h::3')}"
    assert stable_legacy_session_id(1.5, None, "h", 3) == event.session_id


@given(
    st.fixed_dictionaries(
        {"timestamp": st.floats(0, 4e9)},
        optional={
            "memory_allocated": BYTES,
            "memory_reserved": BYTES,
            "memory_change": st.integers(-(2**40), 2**40),
            "memory_mb": st.floats(0, 1e6),
            "device": st.sampled_from(["cuda:1", "cpu", "/gpu:0", "mps"]),
            "type": SAID,
            "message": st.none() | st.text(),
            "metadata_note": st.text(),
        },
    )
)
def test_any_well_formed_legacy_record_becomes_an_event_that_reads_back_the_same(legacy):
    event = telemetry_event_from_record(legacy)
    assert event.timestamp_ns == int(legacy["timestamp"] * 1_000_000_000)
    assert event.context == legacy.get("message")
    assert telemetry_event_from_record(telemetry_event_to_dict(event)) == event
