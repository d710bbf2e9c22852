from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_machine import write_process
from hypothesis import given
from hypothesis import strategies as st

from flightlog.samplers.procfs import (
    Descriptor,
    OpenFile,
    ProcessStat,
    keyed_value,
    parse_blocked,
    parse_diskstats,
    parse_net_dev,
    parse_node_stat,
    parse_pressure_s,
    parse_process_io,
    parse_process_stat,
    parse_statm_rss,
    parse_waited_s,
)

COUNT = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("machine", "line", "kind"),
    [
        ("x86_64", "running\n", None),
        ("x86_64", "230 0x1 0x1 0x7f27 0x0 0x0 0x0 0x7f27 0x7f27\n", "sleep"),
        ("x86_64", "23 0x0 0x0 0x0 0x0 0x7ffd 0x0 0x7ffd 0x7ffd\n", "sleep"),
        ("x86_64", "23 0x4 0x7ffd 0x0 0x0 0x7ffd 0x0 0x7ffd 0x7ffd\n", "io"),
        ("x86_64", "202 0x55f2 0x189 0x0 0x0 0x0 0xffffffff 0x7f27 0x7f27\n", "lock"),
        ("aarch64", "98 0x55f2 0x189 0x0 0x0 0x0 0xffffffff 0x7f27 0x7f27\n", "lock"),
        ("x86_64", "0 0x3 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffd 0x7ffd\n", "io"),
        ("x86_64", "-1 0x7ffd 0x7f27\n", "io"),
    ],
)
def test_a_thread_runs_sleeps_or_waits_for_a_lock_or_for_data(
    machine: str, line: str, kind: str | None
) -> None:
    assert parse_blocked(line.encode(), machine) == kind


def test_of_a_machine_whose_calls_are_not_known_nothing_is_told() -> None:
    with pytest.raises(ValueError, match="no blocked call"):
        parse_blocked(b"230 0x1\n", "riscv64")


@given(
    name=st.binary(max_size=64).filter(lambda name: b"\0" not in name),
    numbers=st.tuples(COUNT, COUNT, COUNT, COUNT, COUNT),
)
def test_a_program_may_be_called_anything(name: bytes, numbers: tuple[int, ...]) -> None:
    user, system, waited_user, waited_system, start = numbers
    line = b"7 (%s) R 3 1 1 0 -1 0 0 0 0 0 %d %d %d %d 20 0 5 0 %d 1 2 3 4\n" % (
        name,
        user,
        system,
        waited_user,
        waited_system,
        start,
    )
    assert parse_process_stat(line) == ProcessStat(
        7, b"R", 3, user + system, waited_user + waited_system, 5, start
    )


@pytest.mark.parametrize(
    "parse",
    [
        parse_process_stat,
        parse_statm_rss,
        parse_process_io,
        parse_node_stat,
        lambda data: keyed_value(data, b"cpu"),
        parse_diskstats,
        parse_net_dev,
        parse_blocked,
        parse_pressure_s,
        parse_waited_s,
    ],
)
@given(
    data=st.one_of(st.binary(), st.text("cpu (){}[]:-0123456789 \nread_bytes:write_bytes:").map(str.encode))
)
def test_garbage_is_a_value_error_or_a_value(parse, data: bytes) -> None:
    try:
        parse(data)
    except ValueError:
        return


NAMES = st.sampled_from([b"oom", b"oom_kill", b"o", b"MemFree", b"max"])


@given(st.lists(st.tuples(NAMES, st.integers(0, 2**64), st.sampled_from([b" ", b":", b":\t  "]))), NAMES)
def test_a_value_is_found_by_its_whole_name(lines: list[tuple[bytes, int, bytes]], name: bytes) -> None:
    data = b"".join(b"%s%s%d\n" % (key, mark, number) for key, number, mark in lines)
    assert keyed_value(data, name) == next((number for key, number, _ in lines if key == name), None)


def test_kilobytes_are_1024_bytes_and_words_are_no_numbers() -> None:
    data = b"MemTotal:  3 kB\nmax max\nempty\nlast 5"
    values = [keyed_value(data, name) for name in (b"MemTotal", b"max", b"empty", b"last", b"Mem")]
    assert values == [3072, None, None, 5, None]


def test_every_process_of_this_machine_can_be_parsed() -> None:
    stats = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            stats[int(name)] = parse_process_stat(Path(f"/proc/{name}/stat").read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            continue
    assert stats[os.getpid()].ppid == os.getppid()


@given(read=COUNT, written=COUNT)
def test_io_counters_are_found_by_name(read: int, written: int) -> None:
    text = f"rchar: 1\nwchar: 2\nread_bytes: {read}\nwrite_bytes: {written}\ncancelled_write_bytes: 3\n"
    assert parse_process_io(text.encode()) == (read, written)


def test_a_file_the_kernel_hands_out_in_pages_is_read_to_its_end() -> None:
    kept = OpenFile("/proc/self/smaps", records=True)
    data = kept.read()
    kept.close()
    assert len(data) > 20_000
    assert b"[stack]" in data


def test_a_file_longer_than_expected_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"0123456789" * 100)
    assert OpenFile(tmp_path / "long", size=16).read() == b"0123456789" * 100


def test_a_file_that_is_not_to_be_kept_is_read_without_being_kept(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    before = len(os.listdir("/proc/self/fd"))
    a, b = OpenFile(tmp_path / "a"), OpenFile(tmp_path / "b", kept=False)
    assert (a.read(), b.read(), b.read()) == (b"1", b"2", b"2")
    assert len(os.listdir("/proc/self/fd")) == before + 1


def test_closing_leaves_a_descriptor_alone_that_has_become_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("ours")
    (tmp_path / "theirs").write_text("theirs")
    ours = Descriptor.open(tmp_path / "ours")
    number = ours.fd
    os.close(number)
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    os.dup2(theirs, number)
    if theirs != number:
        os.close(theirs)
    ours.close()
    assert os.read(number, 10) == b"theirs"
    os.close(number)


def test_reading_leaves_a_descriptor_alone_that_has_become_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "ours").write_text("ours")
    ours = Descriptor.open(tmp_path / "ours")
    number = ours.fd
    assert ours.read_start(10) == b"ours"
    theirs = os.eventfd(7)
    os.dup2(theirs, number)  # reading it would set it to 0
    with pytest.raises(OSError, match="closed a descriptor"):
        ours.read_start(10)
    assert os.eventfd_read(theirs) == 7
    os.close(theirs)
    os.close(number)


def test_a_process_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    write_process(tmp_path, 5)
    with pytest.raises(FileNotFoundError):
        OpenFile(tmp_path / "6" / "stat").read()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    kept = OpenFile(f"/proc/{pid}/stat")
    assert kept.read().startswith(str(pid).encode())
    os.waitpid(pid, 0)
    with pytest.raises(ProcessLookupError):
        kept.read()
