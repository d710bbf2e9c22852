"""Pictures of the live view, of a fixed state in terminals of fixed sizes; look at them when they change.

`pytest tests/tui/test_top_snapshots.py --snapshot-update` makes them anew.
"""

from __future__ import annotations

import pytest
from driving import until
from states import NOTHING, STATE, changed, top


@pytest.fixture(autouse=True)
def terminal(monkeypatch) -> None:
    """The same for everybody, whatever terminal the tests run in."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


PANES = ["tasks", "running", "workers", "machines", "gpu", "failures"]


def ready(app, *keys):
    app.theme = "textual-dark"  # TEXTUAL_THEME was read when Textual was loaded

    async def play(pilot):
        await until(pilot, lambda: app.state is not None)
        await pilot.press(*keys)
        await pilot.pause()

    return play


@pytest.mark.parametrize(
    ("pane", "size"),
    [
        *((pane, (80, 24)) for pane in PANES),
        *((pane, (100, 30)) for pane in ("workers", "machines")),
        ("running", (40, 16)),
    ],
    ids=lambda value: value if isinstance(value, str) else "{}x{}".format(*value),
)
def test_a_pane_looks_as_it_did(snap_compare, pane, size) -> None:
    app = top()
    assert snap_compare(app, terminal_size=size, run_before=ready(app, str(1 + PANES.index(pane))))


def test_an_opened_failure_looks_as_it_did(snap_compare) -> None:
    app = top()
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready(app, "6", "enter"))


def test_a_sorted_and_filtered_pane_looks_as_it_did(snap_compare) -> None:
    app = top()
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready(app, "s", "slash", *"sim"))


def test_a_run_that_failed_looks_as_it_did(snap_compare) -> None:
    app = top(changed(STATE, status="failed", error="ValueError: negative population", doing=[]))
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready(app))


def test_an_empty_run_looks_as_it_did(snap_compare) -> None:
    app = top(NOTHING)
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready(app))


def test_without_colour_nothing_is_lost(snap_compare, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = top(ascii_only=True)
    assert snap_compare(app, terminal_size=(80, 24), run_before=ready(app, "2"))
