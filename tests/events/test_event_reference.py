from __future__ import annotations

from pathlib import Path

from strategies import BUILT_IN_STREAMS

from flightlog.events import define_event, kinds
from flightlog.events.schema import reference_page

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_the_page_in_docs_is_what_the_declarations_say():
    assert PAGE.read_text("utf-8") == reference_page(), "docs/events.md is out of date: run `make docs`"


def test_every_event_and_field_is_documented():
    assert [cls for cls in kinds().values() if not cls.of_user and not cls.__dict__.get("__doc__")] == []
    assert [line for line in reference_page().splitlines() if line.endswith("|  |")] == []


def test_every_stream_and_event_has_its_section():
    lines = reference_page().splitlines()
    assert [stream for stream in BUILT_IN_STREAMS if f"## {stream}" not in lines] == []
    events = [kind for kind, cls in kinds().items() if cls.stream in BUILT_IN_STREAMS]
    assert [kind for kind in events if f"### {kind}" not in lines] == []


def test_a_row_says_type_unit_presence_and_meaning():
    lines = reference_page().splitlines()
    cpu_s = "CPU time, user and system, of what `cpu_scope` says"
    assert f"| `cpu_s` | number or null | s | unless `null` | {cpu_s} |" in lines
    assert "| `args` | object |  | yes | arguments by name, bounded and redacted |" in lines
    depends_on = "task ids it waits for, where the engine knows them"
    assert f"| `depends_on` | list of strings |  | unless `[]` | {depends_on} |" in lines


def test_users_events_do_not_change_the_page():
    before = reference_page()
    define_event("reference_tests.Mine", x=int)
    assert reference_page() == before
