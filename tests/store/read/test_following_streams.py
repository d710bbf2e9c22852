"""A stream that is read again and again gives every event once."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from flightlog.events import UserEvent
from flightlog.store import layout
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.events import Following


def line(number: int, writer: str = "w1") -> bytes:
    event = UserEvent(
        timestamp="2026-05-20T03:52:00.000000Z",
        writer=writer,
        seq=number,
        name=f"{writer}-{number}",
        fields={},
    )
    return msgspec.json.encode(event) + b"\n"


def names(following: Following, *, last: bool = False) -> list[str]:
    return [event.name for event in following.new(last=last) if isinstance(event, UserEvent)]


def append(file: Path, *lines: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as out:
        out.writelines(lines)


def test_each_look_gives_what_is_new(tmp_path: Path):
    file, following = layout.stream_file(tmp_path, "events"), Following(tmp_path, "events")
    assert names(following) == []
    append(file, line(0), line(1)[:20])
    assert names(following) == ["w1-0"]
    append(file, line(1)[20:], line(2))
    assert names(following) == ["w1-1", "w1-2"]
    assert names(following, last=True) == []


def test_lines_are_given_once_from_tail_to_file_and_from_segment_to_run(tmp_path: Path):
    folder, following = layout.writer_folder(tmp_path, "w1"), Following(tmp_path, "events")
    tail, file = layout.tail_file(folder, "events", "a"), layout.stream_file(folder, "events")
    append(tail, line(0), b"\0" * 100)
    assert names(following) == ["w1-0"]
    append(file, line(0), line(1))
    assert names(following) == ["w1-1"]
    file.rename(layout.rotated_file(folder, "events", 1))
    append(file, line(2))
    assert names(following) == ["w1-2"]
    append(layout.stream_file(tmp_path, "events"), line(0), line(1), line(2), line(3))
    for part in folder.iterdir():
        part.unlink()
    assert names(following) == ["w1-3"]


def test_a_file_that_takes_the_place_of_another_hides_nothing_from_the_last_look(tmp_path: Path):
    file, following = layout.stream_file(tmp_path, "events"), Following(tmp_path, "events")
    append(file, *map(line, range(10)))
    assert len(names(following)) == 10
    with file.open("r+b") as same_place:  # as a new file on the same place of the disk
        same_place.truncate(0)
    append(file, *(line(number, "w2") for number in range(5)))
    assert names(following, last=True) == [f"w2-{number}" for number in range(5)]


def test_lines_without_a_number_are_given_by_the_last_look_alone(tmp_path: Path):
    append(
        layout.stream_file(tmp_path, "events"),
        b'{"event":"user_event","timestamp":"","name":"a","fields":{}}\n',
    )
    following = Following(tmp_path, "events")
    assert (names(following), names(following), names(following, last=True)) == ([], [], ["a"])


@given(st.sets(st.integers(0, 60)))
def test_what_was_seen_can_be_written_down_and_read_again(numbers: set[int]):
    seen = Coverage()
    for number in numbers:
        seen.add(number)
    again = Coverage.of(msgspec.json.decode(msgspec.json.encode(seen.ranges())))
    assert {number for number in range(70) if number in again} == numbers
    assert again.ranges() == seen.ranges()


@given(st.lists(st.lists(st.integers(-5, 20), max_size=3), max_size=6))
def test_notes_that_make_no_sense_cover_nothing_they_do_not_say(found: list[list[int]]):
    made = Coverage.of(found)
    said = {number for one in found if len(one) == 2 for number in range(one[0], one[1])}
    assert {number for number in range(-10, 30) if number in made} <= said
