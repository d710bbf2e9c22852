from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flightlog.samplers.process import Departed

CPU = st.integers(0, 50)


@given(
    looks=st.lists(
        st.lists(st.tuples(CPU, CPU, st.sampled_from(["before", "after", "never"])), max_size=4), max_size=8
    )
)
def test_a_parents_children_count_at_most_once_and_the_sum_never_falls(
    looks: list[list[tuple[int, int, str]]],
) -> None:
    """Each child is (CPU when last seen, CPU after that, when its parent's counter shows it)."""
    ledger, shown, late, truth, seen, sums = Departed(), 0, 0, 0, 0, []
    for children in [*looks, [], []]:
        before, shown, late = shown, shown + late, 0
        for last_seen, more, taken_over in children:
            if taken_over == "before":
                shown += last_seen + more
            elif taken_over == "after":
                late += last_seen + more
            truth += last_seen + (more if taken_over != "never" else 0)
            seen += last_seen
        heirs = {number + 2: 1 for number in range(len(children))}
        claims = {1: sum(last_seen for last_seen, _, _ in children)} if children else {}
        ledger.look(heirs, claims, {1: shown - before})
        sums.append(shown + ledger.total)
    assert sums == sorted(sums)
    assert seen <= sums[-1] <= truth


def test_a_claim_the_gain_covers_leaves_nothing() -> None:
    ledger = Departed()
    ledger.look({2: 1}, {1: 10}, {1: 10})
    assert ledger.total == 0


def test_a_claim_on_nobody_is_kept() -> None:
    ledger = Departed()
    ledger.look({2: None}, {None: 10}, {})
    ledger.look({}, {}, {})
    assert ledger.total == 10


def test_an_open_claim_passes_to_the_heir_of_a_parent_that_left() -> None:
    ledger = Departed()
    ledger.look({3: 2}, {2: 10}, {1: 0, 2: 0})
    ledger.look({2: 1}, {1: 5}, {1: 15})  # 1 waited for 2, which had waited for 3 at last
    assert ledger.total == 0


def test_a_claim_on_a_parent_that_could_not_be_read_stays_open() -> None:
    ledger = Departed()
    ledger.look({2: 1}, {1: 10}, {})
    ledger.look({}, {}, {})
    assert ledger.total == 10
    ledger.look({}, {}, {1: 10})
    assert ledger.total == 0


def test_an_unknown_gain_covers_everything() -> None:
    ledger = Departed()
    ledger.look({2: 1}, {1: 10}, {1: None})
    assert ledger.total == 0
