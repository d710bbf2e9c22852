from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightlog.samplers.procfs import growth, percent, rate, rate_over

COUNTERS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100))


@given(COUNTERS, COUNTERS, st.floats(-1, 10))
def test_a_rate_is_never_negative(now: dict[str, int], before: dict[str, int], interval: float) -> None:
    found = rate_over(now, before, interval)
    assert found is None or found >= 0
    for name in now:
        one = rate(now[name], before.get(name), interval)
        assert one is None or one >= 0


def test_what_is_unknown_stays_unknown() -> None:
    assert [growth(None, 1), growth(1, None), growth(1, 2), growth(2, 1)] == [None, None, None, 1]
    assert [rate(2, 1, None), rate(2, 1, 0.0), rate(2, 1, 0.5)] == [None, None, 2.0]
    assert [percent(1, 0), percent(None, 1), percent(1, 4)] == [None, None, 25.0]
    assert [rate_over({}, {}, 1.0), rate_over({"a": 1}, {"b": 1}, 1.0)] == [None, None]
