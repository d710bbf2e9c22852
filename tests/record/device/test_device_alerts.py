"""Alerts come once, and again only after memory was well below the threshold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightlog.record.device.tracker import Alerts, DeviceWatch, percent_used
from flightlog.record.limits import TrackingLimits
from flightlog.samplers.frameworks import AllocatorReading

MIB = 1 << 20


def told_by_definition(
    percents: list[float], warning: float | None, critical: float | None, margin: float
) -> list[str | None]:
    """Each alert from the whole past: due, and either the first or with a reading well below since the
    last."""
    told: list[str | None] = []
    for i, percent in enumerate(percents):

        def due(threshold: float | None, kinds: set[str], i: int = i, percent: float = percent) -> bool:
            if threshold is None or percent < threshold:
                return False
            last = max((j for j in range(i) if told[j] in kinds), default=None)
            return last is None or min(percents[last:i]) < threshold - margin

        if due(critical, {"critical"}):
            told.append("critical")
        else:
            told.append("warning" if due(warning, {"warning", "critical"}) else None)
    return told


thresholds = st.one_of(st.none(), st.integers(0, 100))


@given(st.lists(st.integers(0, 100)), thresholds, thresholds, st.integers(0, 20))
def test_alerts_are_what_their_definition_says(percents, warning, critical, margin):
    alerts = Alerts(warning, critical, margin)
    assert [alerts.observe(p) for p in percents] == told_by_definition(percents, warning, critical, margin)


@given(st.lists(st.one_of(st.none(), st.integers(0, 100))))
def test_an_unknown_reading_tells_nothing_and_changes_nothing(percents):
    both, known = Alerts(80, 90), Alerts(80, 90)
    told = [(p, both.observe(p)) for p in percents]
    assert [alert for p, alert in told if p is not None] == [
        known.observe(p) for p in percents if p is not None
    ]
    assert all(alert is None for p, alert in told if p is None)


def test_memory_that_wavers_around_the_threshold_is_told_once():
    alerts = Alerts(80, 95)
    assert [alerts.observe(p) for p in (79, 80, 79, 81, 76, 82, 74, 80)] == [
        None,
        "warning",
        None,
        None,
        None,
        None,
        None,
        "warning",
    ]


def test_how_full_a_device_is_counts_everyone_and_the_allocators_own_limit():
    use = {"device_used_bytes": 60, "device_free_bytes": 40, "device_total_bytes": 100}
    assert percent_used(AllocatorReading(allocated_bytes=10, **use)) == 60.0
    assert percent_used(AllocatorReading(allocated_bytes=9, limit_bytes=10, **use)) == 90.0
    assert percent_used(AllocatorReading(allocated_bytes=5, device_total_bytes=10)) == 50.0
    assert percent_used(AllocatorReading(allocated_bytes=5)) is None


def test_a_reading_is_one_event_and_what_is_new_in_it_another():
    watch = DeviceWatch(Alerts(80, 90), 64 * MIB)

    def observe(allocated: int, peak: int, used: int = 0) -> list[tuple[str, int]]:
        reading = AllocatorReading(
            allocated_bytes=allocated * MIB,
            peak_allocated_bytes=peak * MIB,
            device_used_bytes=used * 10 * MIB,
            device_total_bytes=1000 * MIB,
        )
        return watch.observe(reading)

    assert observe(10, 10) == [("sample", 0)]
    assert observe(20, 20) == [("sample", 10 * MIB), ("peak", 0)]
    assert observe(20, 500) == [("sample", 0), ("peak", 0)]
    assert observe(84, 500) == [("allocation", 64 * MIB)]
    assert observe(10, 500, used=95) == [("deallocation", -74 * MIB), ("critical", 0)]
    assert watch.peak_bytes == 500 * MIB


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40))))
def test_the_peak_is_the_highest_there_ever_was_and_told_when_it_has_grown(readings):
    watch = DeviceWatch(Alerts(None, None), 64 * MIB)
    half = TrackingLimits.peak_step_bytes // 2
    highest, told = 0, None
    for allocated, peak in readings:
        reading = AllocatorReading(allocated_bytes=allocated * half, peak_allocated_bytes=peak * half)
        events = watch.observe(reading)
        highest = max(highest, allocated, peak)
        expected = told is not None and highest - told >= 2
        told = highest if told is None or expected else told
        assert watch.peak_bytes == highest * half
        assert (("peak", 0) in events) == expected


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_the_changes_of_a_session_add_up_to_where_it_ended(levels):
    watch = DeviceWatch(Alerts(None, None), 100)
    told = [watch.observe(AllocatorReading(allocated_bytes=n))[0] for n in levels]
    assert levels[0] + sum(change for _, change in told) == levels[-1]
    for kind, change in told:
        assert kind == ("sample" if abs(change) < 100 else "allocation" if change > 0 else "deallocation")
