"""Parcels, from a spool to a run directory: whatever happens to them on their way, the files are the same."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.engines.limits import RelayLimits
from flightlog.engines.relay.chunks import ROOM_BYTES, Chunk, NotAChunk, ReceivedFiles, pack, unpack
from flightlog.engines.relay.recording import SpooledFiles, make_spool, settle_dead, take_orphans
from flightlog.store import layout
from flightlog.store.documents import read_document, write_document
from flightlog.store.run import Run
from flightlog.store.write.writer import RunWriter

TRACE, SPOOL, WRITER = "a" * 32, "5" * 16, "0a0b0c0d"
LINES = f"segments/{WRITER}/spans-000001.jsonl"
NOTE = f"segments/{WRITER}/writer.json"


def make_home(folder: Path) -> Path:
    """A run directory that chunks may land in."""
    run = folder / "run-20261115T120000Z-demo-00000001"
    run.mkdir(parents=True)
    write_document(
        run / layout.RUN,
        layout.RunInfo(
            run_id=run.name,
            project="demo",
            status="running",
            start_time="",
            trace_id=TRACE,
            writer="ffffffff",
        ),
    )
    return run


def a_line(writer: str, number: int, size: int = 0) -> bytes:
    return (
        msgspec.json.encode(
            {
                "event": "metric",
                "timestamp": "2026-11-15T12:00:00.000000Z",
                "writer": writer,
                "seq": number,
                "name": "x" * size,
                "value": 1.0,
            }
        )
        + b"\n"
    )


def a_writer(run: Path, writer: str, **options: int) -> RunWriter:
    info = layout.WriterInfo(writer=writer, pid=os.getpid(), host="node-2", heartbeat="now")
    return RunWriter(run, info, **options)


def record(files: RunWriter, lines: int, size: int = 0, stream: str = "metrics") -> None:
    out = files.stream(stream)
    for _ in range(lines):
        line = a_line(files.info.writer, out.number(), size)
        try:
            out.put(line)
        except ValueError:
            out.overflow(line)
    files.flush()
    files.save()


def contents(run: Path) -> dict[str, bytes]:
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def a_parcel(**changes: object) -> Chunk:
    return msgspec.structs.replace(Chunk(TRACE, SPOOL, LINES, "lines", 0, b'{"a": 1}\n'), **changes)


@pytest.fixture
def home(tmp_path):
    return make_home(tmp_path / "home")


@pytest.fixture
def spool(tmp_path):
    made = make_spool(tmp_path, "run-20261115T120000Z-demo-00000001", TRACE, "b" * 16)
    yield made
    made.release()


def landed(run: Path, chunks: list[Chunk]) -> ReceivedFiles:
    files = ReceivedFiles(run)
    for chunk in chunks:
        files.write(unpack(pack(chunk)))
    return files


def test_a_spool_lands_under_the_names_of_its_writers_and_reads_as_one_run(home, spool):
    first, second = a_writer(spool.run, "00000001"), a_writer(spool.run, "00000002")
    record(first, 3)
    record(second, 2)
    landed(home, list(SpooledFiles(spool.run, TRACE, spool.name).chunks()))
    read = Run(home).read()
    assert [(e.writer, e.seq) for e in read.events("metrics")] == [
        ("00000001", 0),
        ("00000001", 1),
        ("00000001", 2),
        ("00000002", 0),
        ("00000002", 1),
    ]
    assert read.completeness().lost == {}


def test_a_parcel_is_at_most_a_mebibyte_and_holds_whole_lines(spool):
    files = a_writer(spool.run, WRITER)
    record(files, 300, size=20_000)
    sent = [p for p in SpooledFiles(spool.run, TRACE, spool.name).chunks() if p.kind == "lines"]
    assert len(sent) > 5
    assert all(len(pack(chunk)) <= RelayLimits.max_chunk_bytes for chunk in sent)
    assert {chunk.data[-1:] for chunk in sent} == {b"\n"}


def test_a_line_that_is_not_whole_yet_waits(spool):
    record(files := a_writer(spool.run, WRITER), 1)
    file = layout.stream_file(files.folder, "metrics")
    with file.open("ab") as out:
        out.write(b'{"torn')
    pending = SpooledFiles(spool.run, TRACE, spool.name)
    assert [p.data for p in pending.chunks() if p.kind == "lines"] == [a_line(WRITER, 0)]
    with file.open("ab") as out:
        out.write(b'": 1}\n')
    assert [(p.at, p.data) for p in pending.chunks() if p.kind == "lines"] == [
        (len(a_line(WRITER, 0)), b'{"torn": 1}\n')
    ]


def test_what_could_not_be_sent_is_given_again(spool):
    record(a_writer(spool.run, WRITER), 2)
    pending = SpooledFiles(spool.run, TRACE, spool.name)
    first = next(pending.chunks())
    assert next(pending.chunks()) == first
    assert len(list(pending.chunks())) == 2
    assert list(pending.chunks()) == []


def test_a_file_that_grows_full_and_is_put_aside_lands_once(home, spool):
    files = a_writer(spool.run, WRITER, rotate_bytes=5000)
    pending = SpooledFiles(spool.run, TRACE, spool.name)
    target = ReceivedFiles(home)
    for _ in range(40):
        record(files, 7, size=100)
        for chunk in pending.chunks(everything=True):
            target.write(chunk)
    files.close()
    for chunk in pending.chunks():
        target.write(chunk)
    assert len(list((home / "segments" / WRITER).glob("metrics-*.jsonl"))) > 5
    read = Run(home).read()
    assert [event.seq for event in read.events("metrics")] == list(range(280))
    assert read.completeness().doubled == 0


def test_a_note_counts_no_line_that_has_not_landed_before_it(spool):
    files = a_writer(spool.run, WRITER)
    pending = SpooledFiles(spool.run, TRACE, spool.name)

    def record_and_note(lines: int) -> None:
        record(files, lines)
        counted = {"metrics": files.stream("metrics").lines}
        write_document(files.folder / layout.WRITER, msgspec.structs.replace(files.info, lines=counted))

    record_and_note(1)
    chunks = list(pending.chunks(lambda: record_and_note(5)))
    assert [p.kind for p in chunks] == ["lines", "document"]
    assert (chunks[0].data.count(b"\n"), msgspec.json.decode(chunks[1].data)["lines"]) == (6, {"metrics": 1})


def test_a_heartbeat_alone_is_sent_now_and_then_and_a_last_word_at_once(spool):
    now = [0.0]
    files = a_writer(spool.run, WRITER)
    record(files, 1)
    pending = SpooledFiles(spool.run, TRACE, spool.name, clock=lambda: now[0])

    def names() -> list[str]:
        return [chunk.kind for chunk in pending.chunks()]

    assert names() == ["lines", "document"]
    files.save()
    assert names() == []
    now[0] = RelayLimits.alive_interval_s
    assert names() == ["document"]
    files.info.closed = True
    files.save()
    assert names() == ["document"]


def test_what_a_killed_writer_left_in_its_tails_is_settled_and_it_is_noted_as_dead(home, spool):
    files = a_writer(spool.run, WRITER)
    record(files, 2)
    files.stream("metrics").put(a_line(WRITER, files.stream("metrics").number()))  # in the tail alone
    files.abandon()
    assert settle_dead(spool.run, lambda _info: False, orphaned=True) is False
    landed(home, list(SpooledFiles(spool.run, TRACE, spool.name).chunks()))
    assert [event.seq for event in Run(home).events("metrics")] == [0, 1, 2]
    note = read_document(home / NOTE, layout.WriterInfo).value
    assert (note.closed, note.died, note.unheard) == (True, True, False)


def test_a_writer_that_lives_is_left_alone(spool):
    files = a_writer(spool.run, WRITER)
    record(files, 1)
    assert settle_dead(spool.run, lambda _info: True, orphaned=True) is True
    assert sorted(path.name for path in files.folder.glob("*.tail-*")) == ["metrics.tail-a", "metrics.tail-b"]


def test_a_spool_is_nobody_elses_while_its_process_lives(tmp_path, spool):
    assert take_orphans(tmp_path, TRACE, {spool.name}) == []
    spool.release()
    assert [one.home for one in take_orphans(tmp_path, TRACE, ())] == [spool.home]
    spool.remove()
    assert not (tmp_path / TRACE).exists()


def test_a_gap_is_blank_until_it_is_filled_and_every_whole_line_can_be_read_meanwhile(home):
    lines = [a_line(WRITER, number) for number in range(4)]
    files = ReceivedFiles(home)
    name = f"segments/{WRITER}/metrics-000001.jsonl"
    at = [sum(map(len, lines[:i])) for i in range(4)]
    for number in (3, 1):
        files.write(a_parcel(name=name, at=at[number], data=lines[number]))
    assert sorted(event.seq for event in Run(home).events("metrics")) == [1, 3]
    assert files.missing() == {name: len(lines[0]) + len(lines[2])}
    assert Run(home).read().completeness().foreign == 0
    for number in (0, 2):
        files.write(a_parcel(name=name, at=at[number], data=lines[number]))
    assert (home / name).read_bytes() == b"".join(lines)
    assert files.missing() == {}


def test_what_comes_when_its_file_has_been_folded_stands_in_a_new_one(home):
    files = ReceivedFiles(home)
    files.write(a_parcel(data=b"one\n"))
    (home / LINES).unlink()
    files.write(a_parcel(data=b"one\n"))
    files.write(a_parcel(at=4, data=b"two\n"))
    files.write(a_parcel(at=8, data=b"three\n"))
    assert (home / LINES).read_bytes() == b"two\nthree\n"


def test_bundles_of_two_spools_do_not_meet(home):
    name = "oom/1-20261115T120000Z/bundle.json"
    landed(
        home,
        [
            a_parcel(name=name, kind="document", spool=spool, data=spool.encode())
            for spool in ("1" * 16, "2" * 16)
        ],
    )
    found = sorted(path.relative_to(home).as_posix() for path in home.glob("oom/*/*"))
    assert found == [
        f"oom/{1_000_000 + int(spool * 16, 16) % 1_000_000}-20261115T120000Z/bundle.json" for spool in "12"
    ]


def test_bundles_are_sent_when_they_are_complete(home, spool):
    filling, kept = spool.run / "oom" / ".2", spool.run / "oom" / "1-20261115T120000Z"
    for folder in (filling, kept):
        folder.mkdir(parents=True)
        (folder / "bundle.json").write_bytes(b"{}\n")
        (folder / "snapshot.pickle").write_bytes(bytes(3 * ROOM_BYTES))
    chunks = list(SpooledFiles(spool.run, TRACE, spool.name).chunks())
    assert [(p.kind, p.name.rpartition("/")[2]) for p in chunks] == [
        *[("bytes", "snapshot.pickle")] * 3,
        ("document", "bundle.json"),
    ]
    landed(home, chunks)
    [folder] = (home / "oom").iterdir()
    assert contents(folder) == contents(kept)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../x-000001.jsonl"},
        {"name": f"segments/{WRITER}/../../x-000001.jsonl"},
        {"name": "/etc/x-000001.jsonl"},
        {"name": f"segments/{WRITER}/..-000001.jsonl"},
        {"name": f"segments/{WRITER}/.hidden-000001.jsonl"},
        {"name": f"segments/{WRITER}/a/b-000001.jsonl"},
        {"name": f"segments/{WRITER}/spans.jsonl"},
        {"name": "segments/../spans-000001.jsonl"},
        {"name": "run.json", "kind": "document"},
        {"name": "tasks.jsonl"},
        {"name": NOTE, "kind": "bytes"},
        {"name": "oom/1-20261115T120000Z/../../run.json", "kind": "document"},
        {"name": f"segments/{WRITER}/x\n-000001.jsonl"},
        {"name": f"segments/{WRITER}/{'x' * 300}-000001.jsonl"},
        {"spool": "../../etc"},
        {"at": -1},
    ],
)
def test_a_name_that_leads_elsewhere_is_no_parcel(changes):
    chunk = a_parcel(**changes)
    with pytest.raises(NotAChunk):
        pack(chunk)
    body = msgspec.msgpack.encode(chunk)
    with pytest.raises(NotAChunk):
        unpack(b"flp1" + zlib.crc32(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize(
    "chunk",
    [
        a_parcel(trace_id="c" * 32),
        a_parcel(at=RelayLimits.max_gap_bytes + 1),
        a_parcel(at=1 << 62),
        a_parcel(name="segments/ffffffff/spans-000001.jsonl"),
        a_parcel(name=NOTE, kind="document", data=b'{"writer": "11111111", "pid": 1, "host": "h"}'),
        a_parcel(
            name=NOTE, kind="document", data=b'{"writer": "0a0b0c0d", "pid": 1, "host": "h", "owner": true}'
        ),
        a_parcel(name=NOTE, kind="document", data=b"torn"),
    ],
    ids=["another run", "far away", "further", "the owner", "another's note", "an owner's note", "no note"],
)
def test_a_parcel_that_may_not_land_changes_nothing(home, chunk):
    before = contents(home)
    with pytest.raises(NotAChunk):
        ReceivedFiles(home).write(chunk)
    assert contents(home) == before


def test_a_writer_of_the_run_directory_itself_takes_no_parcels(home):
    files = a_writer(home, WRITER)
    record(files, 1)
    with pytest.raises(NotAChunk, match="writes here itself"):
        ReceivedFiles(home).write(a_parcel())
    files.close()


def test_a_second_spool_cannot_write_into_a_writer_of_the_first(home):
    files = landed(home, [a_parcel()])
    with pytest.raises(NotAChunk, match="another spool"):
        files.write(a_parcel(spool="6" * 16, at=9))


@given(st.binary(max_size=300))
def test_no_bytes_at_all_make_unpacking_raise_anything_else(data):
    for one in (data, b"flp1" + data):
        with pytest.raises(NotAChunk):
            unpack(one)


@given(data=st.data())
@settings(max_examples=30)
def test_any_order_repetition_and_splitting_gives_the_same_directory(data):
    with TemporaryDirectory() as name:
        root = Path(name)
        spool = make_spool(root, "run-20261115T120000Z-demo-00000001", TRACE, "b" * 16)
        bundle = spool.run / "oom" / "1-20261115T120000Z"
        bundle.mkdir(parents=True)
        (bundle / "events.jsonl").write_bytes(b"".join(a_line(WRITER, n) for n in range(3)))
        pending = SpooledFiles(spool.run, TRACE, spool.name)
        writers = [a_writer(spool.run, one, rotate_bytes=600) for one in ("00000001", "00000002")]
        chunks: list[Chunk] = []
        for _ in range(data.draw(st.integers(1, 4))):
            for files in writers:
                record(
                    files,
                    data.draw(st.integers(1, 4)),
                    stream=data.draw(st.sampled_from(["metrics", "spans"])),
                )
            (bundle / "bundle.json").write_bytes(os.urandom(8))
            chunks += pending.chunks(everything=True)
        for files in writers:
            files.close()
        spool.release()
        plain = make_home(root / "plain")
        landed(plain, chunks)
        pieces: list[Chunk] = []
        for chunk in chunks:
            cut = data.draw(st.integers(0, len(chunk.data))) if chunk.kind != "document" else 0
            for start, piece in ((0, chunk.data[:cut]), (cut, chunk.data[cut:])):
                if piece:
                    pieces.append(msgspec.structs.replace(chunk, at=chunk.at + start, data=piece))
        repeated = pieces + chunks + data.draw(st.lists(st.sampled_from(pieces), max_size=5))
        mixed = make_home(root / "mixed")
        files_mixed = landed(mixed, data.draw(st.permutations(repeated)))
        assert contents(mixed) == contents(plain)
        assert files_mixed.missing() == {}
