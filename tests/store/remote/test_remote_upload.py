from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remote_places import HOST, RUN_ID, FaultyFileSystem, Killed, Writing, fetch_all, place, read_back

from flightlog.core.errors import RemoteError, UsageError
from flightlog.store import layout
from flightlog.store.limits import StoreLimits
from flightlog.store.liveness import Observer
from flightlog.store.remote.copies import FOLDER, check_copy
from flightlog.store.remote.state import CopyStatus, copies_of, sole_uploader, states_of
from flightlog.store.remote.upload import Uploader
from flightlog.store.run import Run


def everything(writing: Writing) -> list[tuple[str, int]]:
    return sorted(writing.written)


def plain(run: Path) -> dict[str, bytes]:
    """The files of a run, as they should stand at the address: of tails, what stands in them."""
    found = (file for file in run.rglob("*") if file.is_file() and layout.FOLLOWERS not in file.parts)
    files = {str(file.relative_to(run)): file.read_bytes() for file in found}
    held = {name: data.partition(b"\0")[0] if ".tail-" in name else data for name, data in files.items()}
    return {name: data for name, data in held.items() if data or ".tail-" not in name}


def without_notes(filesystem: FaultyFileSystem) -> dict[str, bytes]:
    return {name: data for name, data in filesystem.objects.items() if not name.startswith(FOLDER)}


def pieces(filesystem: FaultyFileSystem) -> list[str]:
    return [name for name in filesystem.objects if name.startswith(f"{FOLDER}/") and name.count("/") > 1]


def test_a_run_that_has_ended_stands_at_the_address_as_it_stands_here(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.write("0d0d0d0d", lines=2)
    writing.close()
    synced = writing.uploader(place(filesystem)).sync()
    assert without_notes(filesystem) == plain(writing.path)
    assert (synced.complete, synced.files, synced.sent_files) == (True, 3, 3)
    assert synced.sent_bytes == synced.bytes == sum(map(len, plain(writing.path).values()))
    assert read_back(place(filesystem)) == everything(writing)


def test_a_run_that_goes_on_is_read_up_to_what_stands_in_its_tails(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.flush()
    writing.write(lines=2)
    writing.write("0d0d0d0d", lines=4)
    assert not writing.uploader(place(filesystem)).sync().complete
    assert read_back(place(filesystem)) == everything(writing)
    with tempfile.TemporaryDirectory() as folder:
        assert problems(fetch_all(place(filesystem), Path(folder))) == []


def problems(path: Path) -> list[str]:
    """What a reader finds wrong with the lines, but for writers that live."""
    return [
        problem for problem in Run(path).completeness().problems if "did not close the record" not in problem
    ]


def test_only_what_is_new_is_sent(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    uploader = writing.uploader(place(filesystem))
    writing.write(lines=1000)
    writing.flush()
    first = uploader.sync().sent_bytes
    writing.write(lines=1)
    writing.flush()
    second = uploader.sync()
    assert second.sent_files == 1
    assert second.sent_bytes == len((writing.path / "metrics.jsonl").read_bytes()) - (
        first - sizes_beside_lines(writing)
    )
    assert uploader.sync().sent_bytes == 0


def sizes_beside_lines(writing: Writing) -> int:
    files = plain(writing.path)
    return sum(len(data) for name, data in files.items() if name.endswith(".json"))


def test_what_has_not_changed_costs_no_writing_call_and_no_reading_of_the_run(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    writing.uploader(place(filesystem)).sync()
    filesystem.calls.clear()
    synced = writing.uploader(place(filesystem)).sync()
    assert (synced.complete, synced.sent_files, synced.files) == (True, 0, 3)
    assert {call for call, _ in filesystem.calls} == {"list", "read"}


def test_a_growing_file_is_kept_in_few_objects_however_often_it_is_sent(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    uploader = writing.uploader(place(filesystem))
    for _ in range(60):
        writing.write()
        writing.flush()
        uploader.sync()
    lines = [name for name in pieces(filesystem) if "/metrics.jsonl/" in name]
    assert len(lines) < 2 * StoreLimits.joined_pieces
    assert read_back(place(filesystem)) == everything(writing)


def test_closing_replaces_the_pieces_by_the_files_and_leaves_nothing_behind(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    uploader = writing.uploader(place(filesystem))
    for _ in range(3):
        writing.write(lines=2)
        writing.write("0d0d0d0d")
        writing.beat()
        uploader.sync()
    writing.close()
    assert uploader.sync().complete
    assert without_notes(filesystem) == plain(writing.path)
    assert pieces(filesystem) == []
    assert len([name for name in filesystem.objects if name.startswith(FOLDER)]) == 1


def test_a_killed_run_is_copied_with_what_its_tails_hold(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.flush()
    writing.write(lines=2)
    writing.kill()
    assert writing.uploader(place(filesystem)).sync().complete
    assert read_back(place(filesystem)) == everything(writing)


def test_a_killed_run_that_is_closed_later_is_brought_up_to_date(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.write("0d0d0d0d", lines=2)
    writing.beat()
    writing.kill()
    writing.uploader(place(filesystem)).sync()
    writing.seal()
    writing.uploader(place(filesystem)).sync()
    assert without_notes(filesystem) == plain(writing.path)
    assert read_back(place(filesystem)) == everything(writing)


def test_a_file_that_was_put_aside_keeps_its_pieces(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path, rotate_bytes=2000), FaultyFileSystem()
    uploader = writing.uploader(place(filesystem))
    writing.write(lines=15)
    writing.flush()
    before = uploader.sync()
    writing.write(lines=5)
    writing.flush()
    assert list((writing.path / "segments/0c0c0c0c").glob("metrics-*.jsonl"))
    after = uploader.sync()
    assert after.sent_bytes < before.sent_bytes
    assert read_back(place(filesystem)) == everything(writing)


def test_without_what_this_place_remembers_nothing_is_sent_twice(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=5)
    writing.flush()
    writing.uploader(place(filesystem)).sync()
    for file in (writing.path / layout.FOLLOWERS).glob("sync-????????.json"):
        file.unlink()
    assert writing.uploader(place(filesystem)).sync().sent_bytes == 0


def test_two_copies_of_one_run_never_write_the_same_object_and_are_read_as_one(tmp_path: Path) -> None:
    """As where hosts do not share a disk, and each has what its own processes wrote."""
    here, there, filesystem = (
        Writing(tmp_path / "a"),
        Writing(tmp_path / "b", host="node-2"),
        FaultyFileSystem(),
    )
    here.write(lines=3)
    there.write("0d0d0d0d", lines=4)
    for writing in (here, there):
        writing.flush()
        writing.kill()
    for file in ("run.json", "metrics.jsonl"):
        (there.path / file).unlink(missing_ok=True)
    writes: list[set[str]] = []
    for writing, host in ((here, HOST), (there, "node-2")):
        filesystem.calls.clear()
        seen = Observer(now=2e9, host=host, process_started=lambda _pid: None)
        Uploader(writing.path, place(filesystem), now=lambda seen=seen: seen).sync()
        writes.append({name for call, name in filesystem.calls if call == "write"})
    assert writes[0] & writes[1] == set()
    assert read_back(place(filesystem)) == sorted(here.written | there.written)


def test_another_host_that_sees_the_same_directory_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.flush()
    writing.uploader(place(filesystem)).sync()
    writing.write(lines=2)
    writing.close()
    login = Observer(now=2e9, host="login", process_started=lambda _pid: None)
    assert Uploader(writing.path, place(filesystem), now=lambda: login).sync().complete
    assert read_back(place(filesystem)) == everything(writing)
    writing.uploader(place(filesystem)).sync()
    assert without_notes(filesystem) == plain(writing.path)
    assert Uploader(writing.path, place(filesystem), now=lambda: login).sync().sent_bytes == 0
    assert pieces(filesystem) == []


def test_a_file_that_is_gone_or_cut_here_stays_there(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    writing.uploader(place(filesystem)).sync()
    whole = without_notes(filesystem)
    (writing.path / "recorder.json").unlink()
    (writing.path / "metrics.jsonl").write_bytes(b"")
    synced = writing.uploader(place(filesystem)).sync()
    assert synced.notes == (
        f"metrics.jsonl is shorter here (0 bytes) than there "
        f"({len(whole['metrics.jsonl'])}): the longer one stays",
        "recorder.json is gone here, and stays there",
    )
    assert without_notes(filesystem) == whole


def test_what_arrives_damaged_is_an_error_and_not_part_of_the_copy(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()

    def damage(call: str, name: str) -> None:
        if call == "write" and name.endswith("metrics.jsonl"):
            held = filesystem.store[name]
            held.seek(0)
            held.write(b"?")

    filesystem.after = damage
    with pytest.raises(RemoteError, match=r"metrics\.jsonl: SHA-256 is not that of what was sent") as caught:
        writing.uploader(place(filesystem)).sync()
    assert caught.value.kind == "changed"
    assert place(filesystem).notes(RUN_ID) == []


def test_verifying_reads_every_byte_again(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    writing.uploader(place(filesystem)).sync()
    assert check_copy(writing.path, RUN_ID, place(filesystem), writing.observer()).problems == ()
    held = filesystem.store[f"/runs/{RUN_ID}/metrics.jsonl"]
    held.seek(5)
    held.write(b"?")
    check = check_copy(writing.path, RUN_ID, place(filesystem), writing.observer())
    assert check.broken == ("metrics.jsonl",)
    (problem,) = check.problems
    assert problem.startswith("metrics.jsonl: s3://bucket/runs holds something else than was put there")


def test_what_was_damaged_or_removed_there_is_sent_again_when_it_is_asked_for(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    writing.uploader(place(filesystem)).sync()
    filesystem.store[f"/runs/{RUN_ID}/metrics.jsonl"].truncate(5)
    del filesystem.store[f"/runs/{RUN_ID}/run.json"]
    broken = check_copy(writing.path, RUN_ID, place(filesystem), writing.observer()).broken
    assert broken == ("metrics.jsonl", "run.json")
    assert writing.uploader(place(filesystem)).sync(again=broken).sent_files == 2
    assert without_notes(filesystem) == plain(writing.path)
    assert check_copy(writing.path, RUN_ID, place(filesystem), writing.observer()).problems == ()


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
def test_killed_at_any_call_the_copy_is_whole_and_the_next_process_goes_on(
    tmp_path: Path, after: bool
) -> None:
    """Closing is the hardest moment: pieces become files. The uploader dies at its first, second, … call of
    it."""
    number, done = 0, False
    while not done:
        number += 1
        writing, filesystem = Writing(tmp_path / f"{number}"), FaultyFileSystem()
        uploader = writing.uploader(place(filesystem))
        writing.write(lines=2)
        writing.write("0d0d0d0d", lines=2)
        writing.beat()
        uploader.sync()
        known = everything(writing)
        writing.write(lines=1)
        writing.close()
        left = [number]

        def strike(_call: str, _name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        if after:
            filesystem.after = strike
        else:
            filesystem.before = strike
        try:
            uploader.sync()
            done = True
        except Killed:
            pass
        filesystem.before = filesystem.after = lambda _call, _name: None
        found = read_back(place(filesystem))
        assert set(known) <= set(found) <= writing.written
        assert len(found) == len(set(found))
        assert writing.uploader(place(filesystem)).sync().complete
        assert without_notes(filesystem) == plain(writing.path)
        assert pieces(filesystem) == []
    assert number > 10


steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(["0c0c0c0c", "0d0d0d0d"]), st.integers(1, 30)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("beat")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("killed"), st.integers(1, 25), st.booleans()),
    st.tuples(st.just("refused"), st.integers(1, 25)),
    st.tuples(st.just("begin again")),
)


@settings(max_examples=25)
@given(schedule=st.lists(steps, max_size=15), ends=st.sampled_from(["closed", "killed", "killed and closed"]))
def test_whatever_dies_when_every_event_is_read_once(schedule: list[tuple], ends: str) -> None:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as folder:
        writing, filesystem = Writing(Path(folder), rotate_bytes=3000), FaultyFileSystem()
        uploader = writing.uploader(place(filesystem))
        known: set[tuple[str, int]] = set()

        def attempt() -> None:
            nonlocal uploader, known
            so_far = set(writing.written)
            try:
                uploader.sync()
                known = so_far
            except Killed:
                uploader = writing.uploader(place(filesystem))
            except RemoteError:
                pass
            filesystem.before = filesystem.after = lambda _call, _name: None
            found = read_back(place(filesystem)) if filesystem.store else []
            assert known <= set(found) <= writing.written
            assert len(found) == len(set(found))

        for step in schedule:
            match step:
                case ("write", writer, lines):
                    writing.write(writer, lines)
                case ("flush",):
                    writing.flush()
                case ("beat",):
                    writing.beat()
                case ("begin again",):
                    uploader = writing.uploader(place(filesystem))
                case ("killed", number, after):
                    setattr(filesystem, "after" if after else "before", at_call(number, Killed()))
                    attempt()
                case ("refused", number):
                    filesystem.before = at_call(number, ConnectionRefusedError("refused"))
                    attempt()
                case _:
                    attempt()
        if ends == "closed":
            writing.close()
        else:
            writing.kill()
            attempt()
            if ends == "killed and closed":
                writing.seal()
        uploader.sync()
        assert read_back(place(filesystem)) == everything(writing)
        if ends != "killed":
            assert without_notes(filesystem) == plain(writing.path)
        assert pieces(filesystem) == []


def at_call(number: int, error: BaseException):  # type: ignore[no-untyped-def]
    left = [number]

    def strike(_call: str, _name: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise error

    return strike


def test_what_could_not_be_sent_is_remembered_and_said(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    filesystem.before = at_call(3, OSError(28, "No space left on device"))
    with pytest.raises(RemoteError):
        writing.uploader(place(filesystem)).sync()
    (copy,) = copies_of(writing.path)
    size = sum(map(len, plain(writing.path).values()))
    assert copy == CopyStatus(
        run_id=RUN_ID,
        address="s3://bucket/runs",
        state="behind",
        unsent_bytes=size,
        problem="s3://bucket/runs has no room left ([Errno 28] No space left on device); free some, raise "
        "the quota, or use another address",
    )
    filesystem.before = lambda _call, _name: None
    writing.uploader(place(filesystem)).sync()
    (copy,) = copies_of(writing.path)
    assert (copy.state, copy.unsent_bytes, copy.problem) == ("complete", 0, None)


def test_one_process_copies_a_run_at_a_time(tmp_path: Path) -> None:
    writing = Writing(tmp_path)
    with sole_uploader(writing.path) as first, sole_uploader(writing.path) as second:
        assert first is None
        assert second is not None
        assert second.startswith("process ")
    with sole_uploader(writing.path) as third:
        assert third is None


def test_a_directory_that_cannot_be_written_to_is_copied_all_the_same(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    (writing.path / layout.FOLLOWERS).write_bytes(b"in the way")
    assert writing.uploader(place(filesystem)).sync().complete
    assert states_of(writing.path) == []
    assert read_back(place(filesystem)) == everything(writing)


def test_a_folder_without_the_name_of_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bears no name of a run"):
        Uploader(tmp_path, place(FaultyFileSystem()))


def test_a_run_that_is_removed_here_stays_there(tmp_path: Path) -> None:
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write(lines=3)
    writing.close()
    writing.uploader(place(filesystem)).sync()
    shutil.rmtree(writing.path)
    assert read_back(place(filesystem)) == everything(writing)


def test_a_run_that_is_written_put_aside_and_closed_while_it_is_copied_is_read_whole(tmp_path: Path) -> None:
    """Lines move from tail to file, from name to name and into the run's own file while they are being
    sent."""
    writing, filesystem = Writing(tmp_path, rotate_bytes=20_000), FaultyFileSystem()

    def write() -> None:
        for _ in range(300):
            writing.write(lines=20, size=30)
            writing.write("0d0d0d0d", lines=20, size=30)
            writing.flush()
        writing.close()

    thread = threading.Thread(target=write)
    thread.start()
    uploader = writing.uploader(place(filesystem))
    known: set[tuple[str, int]] = set()
    while thread.is_alive():
        so_far = set(writing.written.copy())
        synced = uploader.sync()
        found = read_back(place(filesystem)) if filesystem.store else []
        assert known <= set(found)
        assert synced.notes or so_far <= set(found)
        assert len(found) == len(set(found))
        known = set(found)
    thread.join()
    assert uploader.sync().complete
    assert read_back(place(filesystem)) == everything(writing)
    assert without_notes(filesystem) == plain(writing.path)
    assert pieces(filesystem) == []


def test_a_file_that_is_folded_while_it_is_copied_leaves_nothing_at_the_address(tmp_path: Path) -> None:
    """A run whose processes are gone is copied, and closed between two looks at its files."""
    writing, filesystem = Writing(tmp_path), FaultyFileSystem()
    writing.write("0d0d0d0d", lines=3)
    writing.kill()
    uploader = writing.uploader(place(filesystem), pause=lambda seconds: writing.seal() if seconds else None)
    moving = next(writing.path.rglob("writer.json"))
    write = filesystem.pipe_file

    def changed_meanwhile(path: str, value: bytes, **options: object) -> None:
        if path.endswith("run.json") and moving.exists():
            moving.touch()  # what was listed before is another file now, so that all is looked at again
        write(path, value, **options)

    filesystem.pipe_file = changed_meanwhile  # type: ignore[method-assign]
    assert uploader.sync().complete
    assert read_back(place(filesystem)) == everything(writing)
    assert without_notes(filesystem) == plain(writing.path)
