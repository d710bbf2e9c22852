from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.events import Metric
from flightlog.events.codec import UnknownEvent, encode_line
from flightlog.store import layout
from flightlog.store.layout import WriterInfo
from flightlog.store.limits import StoreLimits
from flightlog.store.read import lines
from flightlog.store.read.completeness import Coverage
from flightlog.store.read.events import RunReading
from flightlog.store.read.files import has_long_line
from flightlog.store.read.lines import Scan, read_lines

T0 = "2026-05-20T03:52:00.000000Z"


def metric(writer: str, seq: int) -> Metric:
    return Metric(timestamp=T0, writer=writer, seq=seq, name="loss", value=float(seq))


def line(writer: str, seq: int) -> bytes:
    return encode_line(metric(writer, seq))


def put(run: Path, place: str, *content: bytes) -> None:
    file = run / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(content))


def tail(*content: bytes) -> bytes:
    return b"".join(content).ljust(2048, b"\0")


def numbers(scan: Scan) -> list[tuple[str, int]]:
    return [(event.writer, event.seq) for event in scan.events()]


def counts(scan: Scan) -> dict[str, int]:
    names = ("read", "torn", "foreign", "oversized", "doubled", "unknown", "unnumbered")
    return {name: number for name in names if (number := getattr(scan, name))}


# --- lines of one file


def test_lines_come_without_newlines_and_the_last_needs_none(tmp_path):
    put(tmp_path, "f", b"one\n\ntwo\r\nthree")
    assert list(read_lines(tmp_path / "f")) == [b"one", b"two\r", b"three"]


def test_a_tail_ends_at_its_first_nul(tmp_path):
    put(tmp_path, "f", b"one\ntwo\n\0\0three\n")
    assert list(read_lines(tmp_path / "f", tail=True)) == [b"one", b"two"]


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 7))
def test_lines_are_the_same_whatever_the_size_of_the_chunks(parts, chunk):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreLimits, "line_chunk_bytes", chunk)
        content = b"\n".join(parts)
        put(Path(folder), "f", content)
        assert list(read_lines(Path(folder, "f"))) == [part for part in content.split(b"\n") if part]


@given(st.lists(st.integers(0, 30), max_size=10), st.integers(1, 9), st.booleans())
def test_a_line_that_is_too_long_is_left_out_and_noted(sizes, chunk, ended):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreLimits, "line_chunk_bytes", chunk)
        patch.setattr(StoreLimits, "max_line_bytes", 12)
        content = b"\n".join(b"x" * size for size in sizes) + b"\n" * ended
        put(Path(folder), "f", content)
        read = lines.FileLines(Path(folder, "f"))
        found = [line for batch in read.batches() for line in batch] + [read.rest]
        assert [len(line) for line in found if line] == [size for size in sizes if 0 < size <= 12]
        assert read.long == [(number, size) for number, size in enumerate(sizes, 1) if size > 12]
        assert has_long_line(Path(folder, "f"), 12) == bool(read.long)


def test_a_file_that_grew_is_read_on_from_where_it_was_left(tmp_path):
    put(tmp_path, "f", b"one\ntw")
    read = lines.FileLines(tmp_path / "f")
    assert list(read.batches()) == [[b"one"]]
    assert read.rest == b"tw"
    put(tmp_path, "f", b"one\ntwo\nthree\n")
    assert list(read.batches()) == [[b"two", b"three"]]
    assert read.rest == b""


# --- coverage of numbers


@given(st.lists(st.integers(0, 40)), st.integers(0, 50))
def test_coverage_is_a_set_of_numbers(added, known):
    coverage, plain = Coverage(), set()
    for number in added:
        assert coverage.add(number) is (number not in plain)
        plain.add(number)
    upper = max(known, max(plain, default=-1) + 1)
    missing = [number for number in range(upper) if number not in plain]
    assert len(coverage) == len(plain)
    assert all((number in coverage) is (number in plain) for number in range(-1, 60))
    assert [number for gap in coverage.gaps(known) for number in gap] == missing


def test_a_million_numbers_in_order_are_one_interval():
    coverage = Coverage()
    assert all(coverage.add(number) for number in range(1_000_000))
    assert (len(coverage), coverage.upper, len(coverage._starts)) == (1_000_000, 1_000_000, 1)


# --- one pass over a stream


def test_a_stream_is_gathered_from_files_segments_and_tails_each_line_once(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 2), line("aa", 3), line("aa", 4)[:25])
    put(tmp_path, "segments/aa/metrics-000001.jsonl", line("aa", 0), line("aa", 1))
    put(tmp_path, "segments/aa/metrics.tail-a", tail(line("aa", 3), line("aa", 4)))
    put(tmp_path, "segments/aa/metrics.tail-b", tail(line("aa", 5)))
    put(tmp_path, "segments/bb/metrics.jsonl", line("bb", 0))
    put(tmp_path, "segments/bb/metrics.tail-a", tail())
    scan = Scan(tmp_path, "metrics")
    assert sorted(numbers(scan)) == [*(("aa", number) for number in range(6)), ("bb", 0)]
    assert counts(scan) == {"read": 7, "torn": 1, "doubled": 1}


def replace_once(file: Path, *content: bytes):
    """What puts another file in the place of this one, the first time it is called."""
    waiting = [b"".join(content)]

    def replace(path: object) -> None:
        if waiting and os.fspath(path) == str(file):
            file.with_suffix(".new").write_bytes(waiting.pop())
            file.with_suffix(".new").replace(file)

    return replace


def test_a_file_that_is_replaced_while_it_is_opened_is_read_and_no_descriptor_is_left(tmp_path, monkeypatch):
    put(tmp_path, "metrics.jsonl", line("aa", 0), line("aa", 1))
    replace = replace_once(tmp_path / "metrics.jsonl", line("aa", 1), line("aa", 0))
    scan, open_file, before = Scan(tmp_path, "metrics"), os.open, os.listdir("/dev/fd")

    def open_and_replace(path, *args):
        fd = open_file(path, *args)
        replace(path)
        return fd

    monkeypatch.setattr(os, "open", open_and_replace)
    assert sorted(numbers(scan)) == [("aa", 0), ("aa", 1)]
    assert (scan.problems, len(os.listdir("/dev/fd"))) == ([], len(before))


def test_a_file_that_is_replaced_after_a_part_was_read_is_read_from_its_beginning(tmp_path, monkeypatch):
    put(tmp_path, "metrics.jsonl", line("aa", 1))
    scan, open_lines = Scan(tmp_path, "metrics"), lines.open_lines
    assert numbers(scan) == [("aa", 1)]
    replace = replace_once(tmp_path / "metrics.jsonl", line("aa", 0), line("aa", 10), line("aa", 11))

    def replace_and_open(path):
        replace(path)
        return open_lines(path)

    monkeypatch.setattr(lines, "open_lines", replace_and_open)
    put(tmp_path, "metrics.jsonl", line("aa", 1), line("aa", 2)[:9])
    assert numbers(scan) == [("aa", 0), ("aa", 10), ("aa", 11)]
    assert counts(scan) == {"read": 4}


def test_a_torn_last_line_is_skipped_and_counted(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0), line("aa", 1)[:-2])
    scan = Scan(tmp_path, "metrics")
    assert list(scan.events()) == [metric("aa", 0)]
    assert counts(scan) == {"read": 1, "torn": 1}


def test_a_last_line_that_only_lacks_its_newline_is_taken(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0)[:-1])
    scan = Scan(tmp_path, "metrics")
    assert list(scan.events()) == [metric("aa", 0)]
    assert counts(scan) == {"read": 1}


def test_foreign_lines_are_skipped_and_counted(tmp_path):
    garbage = [
        b"Killed\n",
        b"[1, 2]\n",
        b"\xff\xfe\xc3\n",
        b'{"event": "met\n',
        b"\0\0\0\n",
        b"null\n",
        b"\n",
        b" \r\n",
    ]
    put(tmp_path, "metrics.jsonl", line("aa", 0), *garbage, line("aa", 1))
    scan = Scan(tmp_path, "metrics")
    assert numbers(scan) == [("aa", 0), ("aa", 1)]
    assert counts(scan) == {"read": 2, "foreign": 6}


def test_a_mark_or_padding_before_a_line_does_no_harm(tmp_path):
    put(
        tmp_path,
        "metrics.jsonl",
        b"\xef\xbb\xbf",
        line("aa", 0),
        b"\0" * 50,
        line("aa", 1),
        line("aa", 2)[:-1],
        b"\r\n",
    )
    scan = Scan(tmp_path, "metrics")
    assert numbers(scan) == [("aa", 0), ("aa", 1), ("aa", 2)]
    assert counts(scan) == {"read": 3}


def test_events_of_unknown_kinds_are_given_and_counted(tmp_path):
    put(tmp_path, "metrics.jsonl", b'{"event":"from_the_future","writer":"aa","seq":0}\n' * 2)
    scan = Scan(tmp_path, "metrics")
    data = {"event": "from_the_future", "writer": "aa", "seq": 0}
    assert list(scan.events()) == [UnknownEvent("from_the_future", data)]
    assert counts(scan) == {"read": 1, "unknown": 1, "doubled": 1}


def test_lines_without_writer_or_number_are_all_taken(tmp_path):
    hand = b'{"event":"metric","name":"loss","value":1.0}\n'
    put(tmp_path, "metrics.jsonl", hand, hand)
    scan = Scan(tmp_path, "metrics")
    assert list(scan.events()) == [Metric(name="loss", value=1.0)] * 2
    assert counts(scan) == {"read": 2, "unnumbered": 2}


def test_records_keep_the_fields_a_declaration_does_not_know(tmp_path):
    put(tmp_path, "metrics.jsonl", b'{"event":"metric","name":"loss","value":1.0,"unit":"nats"}\n', b"{\n")
    scan = Scan(tmp_path, "metrics")
    assert list(scan.records()) == [(Metric(name="loss", value=1.0), {"unit": "nats"})]
    assert counts(scan) == {"read": 1, "unnumbered": 1, "foreign": 1}


def test_a_stream_with_a_dot_in_its_name_is_read(tmp_path):
    put(tmp_path, "user.ml.jsonl", b'{"event":"ml.Step"}\n')
    put(tmp_path, "segments/aa/user.ml-000001.jsonl", b'{"event":"ml.Step"}\n')
    put(tmp_path, "segments/aa/user.ml.tail-a", tail(b'{"event":"ml.Step"}\n'))
    assert len(list(Scan(tmp_path, "user.ml").events())) == 3


def test_a_folder_where_a_file_should_be_is_passed_over(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0))
    (tmp_path / "segments" / "bb" / "metrics.jsonl").mkdir(parents=True)
    assert numbers(Scan(tmp_path, "metrics")) == [("aa", 0)]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that fails when it is read")
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path):
    put(tmp_path, "segments/bb/metrics.jsonl", line("bb", 0))
    (tmp_path / "metrics.jsonl").symlink_to("/proc/self/mem")
    scan = Scan(tmp_path, "metrics")
    assert numbers(scan) == [("bb", 0)]
    assert scan.problems == ["metrics.jsonl cannot be read: Input/output error"]


def test_a_file_rotated_while_it_is_read_is_read_once(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0))
    put(tmp_path, "segments/aa/metrics.tail-a", tail(line("aa", 1)))
    scan = Scan(tmp_path, "metrics")
    events = scan.events()
    found = [next(events)]
    (tmp_path / "metrics.jsonl").rename(tmp_path / "segments/aa/metrics-000001.jsonl")
    put(tmp_path, "metrics.jsonl", line("aa", 1), line("aa", 2))
    put(tmp_path, "segments/aa/metrics.tail-a", tail())
    found += events
    assert [event.seq for event in found] == [0, 1]  # the line after was written later
    assert counts(scan) == {"read": 2}


def test_files_rotated_one_after_the_other_while_they_are_read_leave_no_gap(tmp_path):
    put(tmp_path, "segments/aa/metrics-000001.jsonl", line("aa", 0))
    put(tmp_path, "segments/aa/metrics.jsonl", line("aa", 1))
    put(tmp_path, "segments/aa/metrics.tail-a", tail(line("aa", 2)))
    scan = Scan(tmp_path, "metrics")
    events = scan.events()
    found = [next(events)]
    put(tmp_path, "segments/aa/metrics.tail-a", tail(line("aa", 6)))
    (tmp_path / "segments/aa/metrics.jsonl").rename(tmp_path / "segments/aa/metrics-000002.jsonl")
    put(tmp_path, "segments/aa/metrics-000003.jsonl", line("aa", 2), line("aa", 3))
    put(tmp_path, "segments/aa/metrics-000004.jsonl", line("aa", 4))
    put(tmp_path, "segments/aa/metrics.jsonl", line("aa", 5))
    found += events
    assert [event.seq for event in found] == [0, 1, 2]
    assert list(scan.coverage["aa"].gaps()) == []


def test_a_segment_folded_away_before_its_turn_is_found_in_the_top_level_file(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0))
    put(tmp_path, "segments/bb/metrics.jsonl", line("bb", 0))
    scan = Scan(tmp_path, "metrics")
    events = scan.events()
    found = [next(events)]
    with (tmp_path / "metrics.jsonl").open("ab") as out:
        out.write(line("bb", 0))
    (tmp_path / "segments/bb/metrics.jsonl").unlink()
    found += events
    assert [(event.writer, event.seq) for event in found] == [("aa", 0), ("bb", 0)]
    assert counts(scan) == {"read": 2}


# --- any leftovers at all

PLACES = (
    "metrics.jsonl",
    "segments/{w}/metrics-000001.jsonl",
    "segments/{w}/metrics.jsonl",
    "segments/{w}/metrics.tail-a",
    "segments/{w}/metrics.tail-b",
)


@st.composite
def leftovers(draw):
    """Lines of a few writers strewn over files and tails: some doubled, some torn, some gone."""
    files: dict[str, list[bytes]] = {}
    written: dict[str, int] = {}
    standing: set[tuple[str, int]] = set()
    doubled = 0
    for writer in draw(st.lists(st.sampled_from(["aa", "bb", "cc"]), unique=True, min_size=1)):
        written[writer] = draw(st.integers(0, 12))
        for seq in draw(st.permutations(range(written[writer]))):
            places = draw(st.lists(st.sampled_from(PLACES), max_size=3, unique=True))
            for place in places:
                files.setdefault(place.format(w=writer), []).append(line(writer, seq))
            if places:
                standing.add((writer, seq))
                doubled += len(places) - 1
    torn = 0
    for place, content in files.items():
        if draw(st.booleans()):
            extra = line("dd", 7)
            content.append(extra[: draw(st.integers(1, len(extra) - 2))])
            torn += 1
    return files, written, standing, doubled, torn


@settings(deadline=None)
@given(leftovers())
def test_whatever_is_strewn_about_each_event_is_read_once_and_loss_is_exact(strewn):
    files, written, standing, doubled, torn = strewn
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        for place, content in files.items():
            put(run, place, tail(*content) if ".tail-" in place else b"".join(content))
        writers = [
            WriterInfo(writer=writer, pid=1, host="node-1", closed=True, lines={"metrics": number})
            for writer, number in written.items()
        ]
        reading = RunReading(run, writers)
        found = [(event.writer, event.seq) for event in reading.events("metrics")]
        whole = reading.completeness()
    lost = sum(written.values()) - len(standing)
    assert sorted(found) == sorted(standing)
    assert (whole.lines, whole.doubled, whole.torn, whole.foreign) == (len(standing), doubled, torn, 0)
    assert whole.lost == ({"metrics": lost} if lost else {})
    assert (whole.writers, whole.writers_open) == (len(written), 0)


@settings(deadline=None)
@given(st.data())
def test_a_file_cut_off_at_any_byte_loses_only_what_was_cut(data):
    total = data.draw(st.integers(1, 8))
    content = b"".join(line("aa", seq) for seq in range(total))
    cut = data.draw(st.integers(0, len(content)))
    place = data.draw(st.sampled_from([place.format(w="aa") for place in PLACES]))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        put(run, place, content[:cut])
        info = WriterInfo(writer="aa", pid=1, host="node-1", closed=True, lines={"metrics": total})
        reading = RunReading(run, [info])
        found = [event.seq for event in reading.events("metrics")]
        whole = reading.completeness()
    ends = [sum(len(line("aa", seq)) for seq in range(upto + 1)) for upto in range(total)]
    kept = sum(cut >= end - 1 for end in ends)  # a line is whole without its newline too
    assert found == list(range(kept))
    assert whole.lost_lines == total - kept
    assert whole.torn == (cut not in {0, *ends, *(end - 1 for end in ends)})


def test_a_gap_is_lost_and_an_unclosed_writer_is_said_to_be_open(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0), line("aa", 3), line("aa", 5))
    open_writer = WriterInfo(writer="aa", pid=1, host="node-1", lines={"metrics": 4})
    whole = RunReading(tmp_path, [open_writer]).completeness()
    assert (whole.lost, whole.writers, whole.writers_open) == ({"metrics": 3}, 1, 1)
    assert whole.problems == (
        "metrics: 3 lines of writer aa lost: no. 1 to 2, 4",
        "1 process did not close the record (aa): whether more was to come is unknown",
    )


@pytest.mark.parametrize(
    ("numbers", "counted", "lost", "damaged"),
    [
        ([0, 1, 2, 5_000], 3, 0, 1),
        ([0, 1, 2, 5_000, 5_001], 3, 4_997, 0),
        ([0, 1, 2, 5_000], 5_001, 4_997, 0),
        ([0, 1, 2, 1 << 64, (1 << 64) + 1], 3, 0, 2),
    ],
    ids=["one line alone", "two lines", "the writer's own count", "absurd numbers"],
)
def test_a_large_gap_is_believed_where_the_writer_or_a_second_line_supports_it(
    tmp_path, numbers, counted, lost, damaged
):
    put(tmp_path, "metrics.jsonl", *(line("aa", number) for number in numbers))
    killed = WriterInfo(
        writer="aa", pid=1, host="node-1", counted=True, died=True, lines={"metrics": counted}
    )
    whole = RunReading(tmp_path, [killed]).completeness()
    said = [problem for problem in whole.problems if "damaged" in problem]
    lines, what = ("1 line", "a number") if damaged == 1 else (f"{damaged} lines", "numbers")
    assert (whole.lines, whole.lost_lines) == (len(numbers), lost)
    assert said == [f"metrics: {lines} of writer aa damaged: {what} that cannot be true"][: bool(damaged)]


def test_lines_the_writer_could_not_write_are_lost_once(tmp_path):
    """Refused lines had numbers, so they are missing too: they count once."""
    put(tmp_path, "metrics.jsonl", line("aa", 0))
    info = WriterInfo(
        writer="aa",
        pid=1,
        host="node-1",
        closed=True,
        lines={"metrics": 3, "tasks": 2},
        lost={"metrics": 2},
        reasons={"No space left on device": 2},
    )
    whole = RunReading(tmp_path, [info]).completeness()
    assert whole.lost == {"metrics": 2, "tasks": 2}
    assert whole.problems == (
        "metrics: 2 lines of writer aa lost: no. 1 to 2",
        "tasks: 2 lines of writer aa lost: no. 0 to 1",
        "writer aa could not write 2 lines: No space left on device",
    )


def test_a_reading_counts_a_stream_once_however_often_it_is_gone_through(tmp_path):
    put(tmp_path, "metrics.jsonl", line("aa", 0))
    put(tmp_path, "events.jsonl", b"{\n")
    reading = RunReading(tmp_path, [])
    next(reading.events("metrics"))  # given up half-way
    assert (len(list(reading.events("metrics"))), len(list(reading.records("metrics")))) == (1, 1)
    whole = reading.completeness()
    assert (whole.lines, whole.foreign, whole.doubled) == (1, 1, 0)


def test_the_layout_names_the_files_that_are_read(tmp_path):
    folder = layout.writer_folder(tmp_path, "aa")
    folder.mkdir(parents=True)
    layout.stream_file(tmp_path, "metrics").write_bytes(line("aa", 0))
    layout.rotated_file(folder, "metrics", 1).write_bytes(line("aa", 1))
    layout.rotated_file(folder, "metrics", 1_000_000).write_bytes(line("aa", 2))
    layout.stream_file(folder, "metrics").write_bytes(line("aa", 3))
    layout.tail_file(folder, "metrics", "a").write_bytes(tail(line("aa", 4)))
    layout.tail_file(folder, "metrics", "b").write_bytes(tail(line("aa", 5)))
    assert [seq for _, seq in numbers(Scan(tmp_path, "metrics"))] == [0, 1, 2, 3, 4, 5]
