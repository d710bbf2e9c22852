"""Every rule of a device-memory record, in the order in which rules are checked."""

from __future__ import annotations

import json
from uuid import NAMESPACE_URL, uuid5

import pytest
from builders.telemetry_records import COUNTERS, JSON, completed, record, valid_records
from hypothesis import assume, given
from hypothesis import strategies as st

from flightlog.devices import (
    TelemetryEventV2,
    TelemetryEventV3,
    telemetry_event_from_record,
    telemetry_event_to_dict,
    validate_telemetry_record,
)

NOT_WHOLE = [None, True, 1.0, "1", [], {}]
NOT_TEXT = [1, True, [], {}]
BLANK = [None, "", "  ", "\u00a0"]

REQUIRED = [name for name in record() if name not in {"job_id", "rank", "local_rank", "world_size"}]
NULLABLE = {"allocator_active_bytes", "allocator_inactive_bytes", "device_free_bytes", "device_total_bytes"}


def rules() -> list[tuple[dict[str, object], str]]:
    """Changes that break one rule each, with what is said of it, in the order of the checks."""
    found: list[tuple[dict[str, object], str]] = []

    def text(name):
        found.extend(({name: value}, f"{name} must be a string") for value in NOT_TEXT)
        found.extend(({name: value}, f"{name} must be a non-empty string") for value in BLANK)

    def whole(name, *, nullable=False):
        found.extend(
            ({name: value}, f"{name} must be an integer")
            for value in NOT_WHOLE
            if not (nullable and value is None)
        )

    def least(name, bound, said=""):
        found.append(({name: bound - 1}, f"{name} must be >= {bound}{said}"))

    whole("schema_version")
    found.extend(
        ({"schema_version": version}, f"Unsupported schema_version: {version}")
        for version in (-1, 0, 1, 4, 99)
    )
    found.append(({"extra": 1, "another": 2}, "Unknown telemetry fields: another, extra"))
    text("session_id")
    whole("timestamp_ns")
    least("timestamp_ns", 0)
    text("event_type")
    text("collector")
    whole("sampling_interval_ms")
    least("sampling_interval_ms", 0)
    whole("pid")
    least("pid", -1)
    text("host")
    found.extend(({"job_id": value}, "job_id must be a string") for value in NOT_TEXT)
    found.extend(
        ({"job_id": value}, "job_id must be a non-empty string") for value in BLANK if value is not None
    )
    for name, bound in (("rank", 0), ("local_rank", 0), ("world_size", 1)):
        whole(name)
        least(name, bound)
    whole("device_id")
    for name in COUNTERS[:5]:
        whole(name, nullable=name in NULLABLE)
    for name in COUNTERS[:4]:
        least(name, 0, " when provided" if name in NULLABLE else "")
    for name in COUNTERS[5:]:
        whole(name, nullable=name in NULLABLE)
    for name in COUNTERS[5:]:
        least(name, 0, " when provided" if name in NULLABLE else "")
    found.append(({"device_used_bytes": 101}, "device_used_bytes cannot exceed device_total_bytes"))
    found.append(({"device_free_bytes": 101}, "device_free_bytes cannot exceed device_total_bytes"))
    found.extend(({"context": value}, "context must be a string") for value in NOT_TEXT)
    found.extend(({"metadata": value}, "metadata must be an object") for value in (None, 1, "x", []))
    found.append(({"rank": 1}, "rank must be < world_size"))
    found.append(({"local_rank": 2}, "local_rank must be < world_size"))
    return found


RULES = rules()
OF_THE_JOB = {"job_id", "rank", "local_rank", "world_size", "metadata"}


def refusal(check, *args) -> str:
    with pytest.raises(ValueError) as error:
        check(*args)
    assert type(error.value) is ValueError
    return str(error.value)


@given(valid_records())
def test_a_valid_record_is_an_event_and_comes_back_as_it_was(made):
    validate_telemetry_record(made)
    before = json.dumps(made)
    event = telemetry_event_from_record(made)
    assert telemetry_event_to_dict(event) == completed(made)
    assert json.dumps(made) == before
    assert event == TelemetryEventV3(**completed(made))
    assert telemetry_event_from_record(telemetry_event_to_dict(event)) == event


@given(valid_records())
def test_a_record_of_v2_becomes_one_of_v3_in_the_default_session(made):
    del made["session_id"]
    made["schema_version"] = 2
    made["metadata"].pop("session_id", None)
    validate_telemetry_record(made)
    event = telemetry_event_from_record(made, default_session_id="mine")
    assert telemetry_event_to_dict(event) == {**completed(made), "schema_version": 3, "session_id": "mine"}
    assert telemetry_event_to_dict(TelemetryEventV2(**completed(made))) == completed(made)


@pytest.mark.parametrize(("change", "said"), RULES)
def test_a_broken_rule_is_named(change, said):
    assert refusal(validate_telemetry_record, record(**change)) == said


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_field_is_named(name):
    broken = {field: value for field, value in record().items() if field != name}
    said = (
        "schema_version must be an integer"
        if name == "schema_version"
        else f"Missing required telemetry fields: {name}"
    )
    assert refusal(validate_telemetry_record, broken) == said


def test_all_missing_fields_are_named_in_the_order_of_the_schema():
    assert refusal(validate_telemetry_record, {"schema_version": 3}) == (
        f"Missing required telemetry fields: {', '.join(REQUIRED[1:])}"
    )
    assert refusal(validate_telemetry_record, {"schema_version": 2, "x": 1}) == (
        f"Missing required telemetry fields: {', '.join(REQUIRED[2:])}"
    )


@given(st.data())
def test_of_two_broken_rules_the_first_is_named(data):
    first, second = sorted(data.draw(st.tuples(*[st.integers(0, len(RULES) - 1)] * 2)))
    (one, said), (other, _) = RULES[first], RULES[second]
    assume(not one.keys() & other.keys())
    assert refusal(validate_telemetry_record, record(**other, **one)) == said


@pytest.mark.parametrize(("change", "said"), RULES)
def test_an_event_is_refused_for_the_same_reason_when_it_is_built_by_hand(change, said):
    if "metadata" in change or "extra" in change or change.get("schema_version") == 2:
        return  # those are errors of the call itself
    assert refusal(lambda: TelemetryEventV3(**record(**change))) == said


@pytest.mark.parametrize(("change", "said"), RULES)
def test_reading_a_record_refuses_it_for_the_same_reason(change, said):
    if "session_id" in change or (
        next(iter(change)) in OF_THE_JOB and None in change.values() and "metadata" not in change
    ):
        return  # a session that is not named is made up, and null is as good as nothing for the job's fields
    assert refusal(telemetry_event_from_record, record(**change)) == said


def test_reading_a_record_looks_at_metadata_and_job_first():
    assert (
        refusal(telemetry_event_from_record, {"schema_version": 3, "metadata": 1})
        == "metadata must be an object"
    )
    assert (
        refusal(telemetry_event_from_record, {"schema_version": 3, "rank": 2}) == "rank must be < world_size"
    )
    assert refusal(telemetry_event_from_record, record(rank=1, pid=None)) == "rank must be < world_size"
    assert refusal(telemetry_event_from_record, record(rank=None)) == "rank must be an integer"
    assert refusal(telemetry_event_from_record, [record()]) == "record must be a mapping"


@pytest.mark.parametrize("named", [None, "", "  ", 5])
def test_a_record_without_session_has_that_of_its_metadata_or_the_default_or_one_of_its_own(named):
    in_metadata = {"metadata": {"session_id": "m"}}
    of_metadata = telemetry_event_from_record(record(session_id=named, **in_metadata), default_session_id="d")
    assert of_metadata.session_id == ("m" if named is None else "d")
    assert of_metadata.metadata == {"session_id": "m"}
    assert telemetry_event_from_record(record(session_id=named), default_session_id="d").session_id == "d"
    made_up = telemetry_event_from_record(record(session_id=named)).session_id
    assert made_up == f"legacy-{uuid5(NAMESPACE_URL, '1000000000::node-1::7')}"


@given(valid_records(), st.sampled_from(REQUIRED[1:]), JSON)
def test_whatever_stands_in_a_field_the_outcome_is_an_event_or_a_value_error(made, name, value):
    made[name] = value
    try:
        event = telemetry_event_from_record(made, default_session_id="d")
    except ValueError:
        return
    validate_telemetry_record(telemetry_event_to_dict(event))


def test_metadata_may_be_left_out_when_an_event_is_built():
    fields = record()
    del fields["metadata"]
    assert TelemetryEventV3(**fields).metadata == {}
