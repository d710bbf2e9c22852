from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_machine import MIB, PAGE, FakeClock, remove_process, write_node, write_process
from fake_machine import write as write_text

from flightlog.events import ResourceSample
from flightlog.samplers.process import ProcessSampler, usable_cpus


def _sampler(proc: Path, clock: FakeClock | None = None) -> ProcessSampler:
    # Without kept descriptors, for a plain file that is removed could still be read through one.
    return ProcessSampler(100, proc=proc, clock=clock or FakeClock(), host="node-1", max_descriptors=0)


def _cpu_s(sampler: ProcessSampler) -> float | None:
    (sample,) = sampler.sample()
    return sample.cpu_s


def test_the_first_sample_sums_the_tree_and_has_no_rates(tmp_path: Path) -> None:
    write_process(tmp_path, 100, cpu=50, waited=25, pages=10, read=1, written=2, threads=3, children="101 ")
    write_process(tmp_path, 101, 100, cpu=100, pages=20, read=10, written=20, children="102 ")
    write_process(tmp_path, 102, 101, cpu=200, pages=30, read=100, written=200)
    (tmp_path / "100" / "task" / "103").mkdir()
    sampler = ProcessSampler(100, worker="w-0", proc=tmp_path, clock=FakeClock(), host="node-1")
    assert sampler.sample() == [
        ResourceSample(
            scope="worker",
            host="node-1",
            worker="w-0",
            pid=100,
            cpu_percent=None,
            cpus=usable_cpus(100),
            cpu_s=3.75,
            rss_bytes=60 * PAGE,
            peak_rss_bytes=60 * PAGE,
            processes=3,
            threads=5,
            read_bytes=111,
            write_bytes=222,
        )
    ]


def test_a_worker_process_of_the_tree_has_a_sample_under_its_own_name(tmp_path: Path) -> None:
    def write(cpu: int, pages: int) -> None:
        write_process(tmp_path, 100, cpu=50, pages=10, children="101 103 ")
        write_process(tmp_path, 101, 100, cpu=cpu, pages=pages, read=10, written=20, children="102 ")
        write_process(tmp_path, 102, 101, cpu=100, pages=30, read=100, written=200)
        write_process(tmp_path, 103, 100, cpu=7, pages=1)
        write_text(tmp_path / "101" / "schedstat", "900 2500000000 3\n")

    clock, names = FakeClock(), {100: "itself", 101: "w-1", 999: "gone"}
    write(cpu=100, pages=20)
    sampler = ProcessSampler(100, proc=tmp_path, clock=clock, host="node-1", workers=lambda: names)
    cpus = usable_cpus(100)
    part = {"host": "node-1", "worker": "w-1", "pid": 101, "cpus": cpus, "processes": 2, "threads": 2}
    part |= {"cpu_wait_s": 2.5, "read_bytes": 110, "write_bytes": 220, "peak_rss_bytes": 50 * PAGE}
    whole, *parts = sampler.sample()
    assert (whole.scope, whole.processes) == ("worker", 4)
    assert parts == [
        ResourceSample(scope="worker_process", cpu_percent=None, cpu_s=2.0, rss_bytes=50 * PAGE, **part)
    ]
    clock.now += 2.0
    write(cpu=400, pages=5)
    _, later = sampler.sample()
    part |= {"interval_s": 2.0, "cpu_cores": 1.5, "cpu_percent": 150.0 / (cpus or 1)}
    assert later == ResourceSample(scope="worker_process", cpu_s=5.0, rss_bytes=35 * PAGE, **part)
    names.clear()
    assert len(sampler.sample()) == 1


def test_what_children_wait_for_a_cpu_adds_up_from_the_first_sample_on(tmp_path: Path) -> None:
    def write(waits: dict[int, float]) -> None:
        write_process(tmp_path, 100, children=" ".join(map(str, waits)) + " ")
        for pid, waited_s in waits.items():
            write_process(tmp_path, pid, 100)
            write_text(tmp_path / str(pid) / "schedstat", f"900 {round(waited_s * 1e9)} 3\n")

    def waited() -> float | None:
        [sample] = sampler.sample()
        return sample.children_cpu_wait_s

    sampler = _sampler(tmp_path)
    write({})
    assert waited() is None
    sampler = _sampler(tmp_path)
    write({101: 5.0})  # it is older than the run
    assert waited() == 0.0
    write({101: 6.0, 102: 0.5})
    assert waited() == 1.5
    remove_process(tmp_path, 101)
    write({102: 2.0})
    assert waited() == 3.0


def test_the_second_sample_has_exact_rates(tmp_path: Path) -> None:
    clock = FakeClock()
    write_process(tmp_path, 100, cpu=50, pages=40, peak_kib=400)
    sampler = ProcessSampler(100, proc=tmp_path, clock=clock, host="node-1")
    sampler.sample()
    clock.now += 2.0
    write_process(tmp_path, 100, cpu=350, pages=10, read=1000, written=3000, peak_kib=400)
    assert sampler.sample() == [
        ResourceSample(
            scope="worker",
            host="node-1",
            pid=100,
            interval_s=2.0,
            cpu_percent=150.0 / (usable_cpus(100) or 1),
            cpu_cores=1.5,
            cpus=usable_cpus(100),
            cpu_s=3.5,
            rss_bytes=10 * PAGE,
            peak_rss_bytes=400 * 1024,
            processes=1,
            threads=1,
            read_bytes=1000,
            write_bytes=3000,
            disk_read_bytes_per_s=500.0,
            disk_write_bytes_per_s=1500.0,
        )
    ]


def test_a_waited_for_child_counts_once(tmp_path: Path) -> None:
    write_process(tmp_path, 100, cpu=10, children="101 ")
    write_process(tmp_path, 101, 100, cpu=100)
    sampler = _sampler(tmp_path)
    assert _cpu_s(sampler) == 1.1
    remove_process(tmp_path, 101)
    write_process(tmp_path, 100, cpu=10, waited=120)
    assert [_cpu_s(sampler), _cpu_s(sampler), _cpu_s(sampler)] == [1.3, 1.3, 1.3]


def test_a_child_waited_for_just_after_its_parent_was_read_counts_once(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=100)
    sampler = _sampler(tmp_path)
    sampler.sample()
    remove_process(tmp_path, 101)  # gone, although the parent's counter does not show it yet
    gone = _cpu_s(sampler)
    write_process(tmp_path, 100, waited=110)
    assert [gone, _cpu_s(sampler), _cpu_s(sampler)] == [1.0, 1.1, 1.1]


def test_a_child_nobody_waits_for_is_not_forgotten(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=100, read=7, written=9)
    sampler = _sampler(tmp_path)
    sampler.sample()
    remove_process(tmp_path, 101)
    write_process(tmp_path, 100)
    for _ in range(3):
        (sample,) = sampler.sample()
        assert (sample.cpu_s, sample.read_bytes, sample.write_bytes, sample.processes) == (1.0, 7, 9, 1)
    write_process(tmp_path, 100, waited=50)  # of a later child, never seen: long after the claim was settled
    assert _cpu_s(sampler) == 1.5


def test_a_whole_branch_that_left_is_claimed_from_the_ancestor_that_stayed(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=10, waited=5, children="102 ")
    write_process(tmp_path, 102, 101, cpu=100)
    sampler = _sampler(tmp_path)
    assert _cpu_s(sampler) == 1.15
    remove_process(tmp_path, 101)
    remove_process(tmp_path, 102)
    write_process(tmp_path, 100, waited=15)  # 101 was waited for, but it had not waited for 102
    assert [_cpu_s(sampler), _cpu_s(sampler)] == [1.15, 1.15]


def test_an_orphan_stays_in_the_tree_and_is_kept_when_it_ends(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=10, children="102 ")
    write_process(tmp_path, 102, 101, cpu=20)
    sampler = _sampler(tmp_path)
    sampler.sample()
    remove_process(tmp_path, 101)
    write_process(tmp_path, 100, waited=10)
    write_process(tmp_path, 102, 1, cpu=70)
    (orphaned,) = sampler.sample()
    remove_process(tmp_path, 102)
    (ended,) = sampler.sample()
    assert [(one.cpu_s, one.processes) for one in (orphaned, ended)] == [(0.8, 2), (0.8, 1)]


def test_what_was_started_beside_the_tree_is_no_part_of_it_nor_is_what_it_starts(tmp_path: Path) -> None:
    write_node(tmp_path, load="0.50 0.10 0.00 1/99 103\n")
    write_process(tmp_path, 100, cpu=100, pages=10, children="101 103 ")
    write_process(tmp_path, 101, 100, cpu=1000, pages=100, children="102 ")
    write_process(tmp_path, 102, 101, cpu=1000, pages=100)
    write_process(tmp_path, 103, 100, cpu=10, pages=1)
    sampler = ProcessSampler(
        100, proc=tmp_path, clock=FakeClock(), host="node-1", max_descriptors=0, besides=lambda: {101}
    )
    (first,) = sampler.sample()
    assert (first.processes, first.cpu_s, first.rss_bytes) == (2, 1.1, 11 * PAGE)
    write_process(tmp_path, 102, 101, cpu=1000, pages=100, children="104 ")
    write_process(tmp_path, 104, 102, cpu=1000, pages=100)
    write_node(tmp_path, load="0.50 0.10 0.00 1/99 104\n")
    (second,) = sampler.sample()
    assert (second.processes, second.cpu_s, second.rss_bytes) == (2, 1.1, 11 * PAGE)


def test_what_turns_out_to_have_been_started_beside_the_tree_leaves_it(tmp_path: Path) -> None:
    write_process(tmp_path, 100, cpu=100, pages=10, children="101 ")
    write_process(tmp_path, 101, 100, cpu=1000, pages=100, children="102 ")
    write_process(tmp_path, 102, 101, cpu=1000, pages=100)
    beside: set[int] = set()
    sampler = ProcessSampler(
        100, proc=tmp_path, clock=FakeClock(), host="node-1", max_descriptors=0, besides=lambda: beside
    )
    (first,) = sampler.sample()
    beside.add(101)
    (second,) = sampler.sample()
    assert (first.processes, second.processes) == (3, 1)
    assert (second.cpu_s, second.rss_bytes) == (1.0, 10 * PAGE)


def test_no_more_descriptors_are_kept_than_allowed_and_the_other_processes_are_read_all_the_same(
    tmp_path: Path,
) -> None:
    write_process(tmp_path, 100, cpu=100, children=" ".join(map(str, range(101, 120))) + " ")
    for pid in range(101, 120):
        write_process(tmp_path, pid, 100, cpu=100)
    before = len(os.listdir("/proc/self/fd"))
    sampler = ProcessSampler(100, proc=tmp_path, clock=FakeClock(), host="node-1", max_descriptors=16)
    assert [_cpu_s(sampler), _cpu_s(sampler)] == [20.0, 20.0]
    assert before < len(os.listdir("/proc/self/fd")) <= before + 16
    sampler.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_number_that_passed_to_a_stranger_is_not_the_child(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=10, start=600)
    sampler = _sampler(tmp_path)
    sampler.sample()
    write_process(tmp_path, 100, waited=10)
    write_process(tmp_path, 101, 1, cpu=99_999, start=700)
    (sample,) = sampler.sample()
    assert (sample.cpu_s, sample.processes) == (0.1, 1)


def test_a_child_that_ended_but_was_not_waited_for_still_counts_its_cpu_but_is_no_process(
    tmp_path: Path,
) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=10, state="Z", pages=0)
    (sample,) = _sampler(tmp_path).sample()
    assert (sample.cpu_s, sample.processes, sample.threads) == (0.1, 1, 1)


def test_a_tree_that_is_gone_keeps_its_totals(tmp_path: Path) -> None:
    write_process(tmp_path, 100, cpu=30, pages=8)
    sampler = _sampler(tmp_path)
    sampler.sample()
    remove_process(tmp_path, 100)
    (sample,) = sampler.sample()
    assert (sample.cpu_s, sample.rss_bytes, sample.peak_rss_bytes, sample.processes) == (
        0.3,
        None,
        8 * PAGE,
        0,
    )


def test_a_process_that_was_never_there_gives_no_sample(tmp_path: Path) -> None:
    write_node(tmp_path)
    assert _sampler(tmp_path).sample() == []


def test_bytes_are_unknown_while_a_process_hides_them(tmp_path: Path) -> None:
    write_process(tmp_path, 100, read=5, children="101 ")
    write_process(tmp_path, 101, 100, read=6)
    (tmp_path / "101" / "io").write_text("")
    (sample,) = _sampler(tmp_path).sample()
    assert (sample.read_bytes, sample.write_bytes, sample.processes) == (None, None, 2)


def test_a_process_that_cannot_be_read_just_now_is_not_taken_for_gone(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100, cpu=100)
    sampler = _sampler(tmp_path)
    sampler.sample()
    (tmp_path / "101" / "stat").write_text("")
    unreadable = _cpu_s(sampler)
    write_process(tmp_path, 101, 100, cpu=130)
    assert [unreadable, _cpu_s(sampler)] == [1.0, 1.3]


def test_a_kernel_that_does_not_list_children_is_searched(tmp_path: Path) -> None:
    write_process(tmp_path, 100, children=None)
    write_process(tmp_path, 101, 100, cpu=1, children=None)
    write_process(tmp_path, 90, 101, cpu=2, children=None)  # numbers wrap: a child's may be smaller
    write_process(tmp_path, 200, 1, cpu=4, children=None)
    sampler = _sampler(tmp_path)
    (sample,) = sampler.sample()
    assert (sample.cpu_s, sample.processes) == (0.03, 3)
    write_process(tmp_path, 300, 90, cpu=8, children=None)
    (sample,) = sampler.sample()
    assert (sample.cpu_s, sample.processes) == (0.11, 4)


def test_a_tree_with_very_many_threads_is_searched(tmp_path: Path) -> None:
    write_process(tmp_path, 100, threads=1000, children="")
    write_process(tmp_path, 101, 100, cpu=1)
    (sample,) = _sampler(tmp_path).sample()
    assert (sample.cpu_s, sample.processes, sample.threads) == (0.01, 2, 1001)


def test_children_are_looked_for_again_once_the_kernel_has_given_out_a_number(tmp_path: Path) -> None:
    write_node(tmp_path, load="0 0 0 1/9 100")
    write_process(tmp_path, 100)
    sampler = _sampler(tmp_path)
    sampler.sample()
    write_process(tmp_path, 100, children="101 ")
    write_process(tmp_path, 101, 100)
    write_node(tmp_path, load="0 0 0 1/9 101")
    (sample,) = sampler.sample()
    assert sample.processes == 2


# From here on, the real kernel.


class Child:
    """A child process that does what it is told, line by line, and says when it is done."""

    def __init__(self) -> None:
        code = "import sys\nfor line in sys.stdin:\n    exec(line)\n    print(flush=True)\n"
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def do(self, statement: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    yield made
    if made.process.returncode is None:
        made.end()


BURN = "import time; end = time.process_time() + 0.25\nwhile time.process_time() < end: pass"


@pytest.mark.parametrize("proc", [Path("/proc"), Path("/absent")], ids=["proc", "psutil"])
def test_the_cpu_of_a_child_that_exits_is_counted(proc: Path) -> None:
    sampler = ProcessSampler(proc=proc)
    before = _cpu_s(sampler)
    own = os.times()
    burner = subprocess.Popen([sys.executable, "-S", "-c", BURN])
    _, status, used = os.wait4(burner.pid, 0)
    burner.returncode = status
    after = _cpu_s(sampler)
    now = os.times()
    meanwhile = now.user + now.system - own.user - own.system
    assert before is not None
    assert after is not None
    # Ticks are 10 ms, and four counters are rounded down at each end.
    assert after - before == pytest.approx(used.ru_utime + used.ru_stime + meanwhile, abs=0.06)


def test_the_cpu_of_a_child_that_exits_unwaited_for_is_counted_as_last_seen(child: Child) -> None:
    child.do("import signal, subprocess, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)")
    burn_and_wait = f"{BURN}\nprint(flush=True); import sys; sys.stdin.read()"
    child.do(
        "import subprocess; p = subprocess.Popen("
        f"[sys.executable, '-S', '-c', {burn_and_wait!r}], stdin=-1, stdout=-1); p.stdout.readline()"
    )
    sampler = ProcessSampler(child.pid)
    (seen,) = sampler.sample()
    child.do("p.stdin.close(); p.stdout.read(); p.wait()")
    totals = [sampler.sample()[0] for _ in range(3)]
    assert (seen.processes, [one.processes for one in totals]) == (2, [1, 1, 1])
    assert seen.cpu_s is not None
    for one in totals:
        assert one.cpu_s == pytest.approx(seen.cpu_s, abs=0.05)
        assert one.cpu_s is not None
        assert one.cpu_s >= seen.cpu_s > 0.2


@pytest.mark.parametrize("proc", [Path("/proc"), Path("/absent")], ids=["proc", "psutil"])
def test_a_tree_of_children_is_found_whichever_thread_started_them(proc: Path, child: Child) -> None:
    sleeper = "subprocess.Popen([sys.executable, '-S', '-c', 'import sys; sys.stdin.read()'], stdin=-1)"
    child.do(f"import subprocess, sys, threading; a = {sleeper}; b = []")
    child.do(f"def more(): b.append({sleeper}); started.set(); finish.wait()")
    child.do("started, finish = threading.Event(), threading.Event()")
    child.do("thread = threading.Thread(target=more); thread.start(); started.wait()")
    sampler = ProcessSampler(child.pid, proc=proc)
    (sample,) = sampler.sample()
    assert (sample.processes, sample.threads) == (3, 4)
    child.do("finish.set(); thread.join(); a.stdin.close(); a.wait(); b[0].stdin.close(); b[0].wait()")
    (sample,) = sampler.sample()
    assert (sample.processes, sample.threads) == (1, 1)


def test_the_memory_of_a_child_and_its_peak_are_seen(child: Child) -> None:
    child.do("pass")
    sampler = ProcessSampler(child.pid)
    (before,) = sampler.sample()
    child.do(f"x = b'x' * {64 * MIB}")
    (during,) = sampler.sample()
    child.do("del x")
    (after,) = sampler.sample()
    assert before.rss_bytes is not None
    assert during.rss_bytes is not None
    assert after.rss_bytes is not None
    assert during.rss_bytes - before.rss_bytes == pytest.approx(64 * MIB, abs=MIB)
    assert after.rss_bytes < before.rss_bytes + MIB
    assert after.peak_rss_bytes is not None
    assert after.peak_rss_bytes >= during.rss_bytes - MIB


def test_a_peak_between_two_samples_is_seen_where_the_tree_is_one_process(child: Child) -> None:
    child.do("pass")
    sampler = ProcessSampler(child.pid)
    (before,) = sampler.sample()
    child.do(f"x = b'x' * {64 * MIB}; del x")
    (after,) = sampler.sample()
    assert before.peak_rss_bytes is not None
    assert after.peak_rss_bytes is not None
    assert after.peak_rss_bytes > before.peak_rss_bytes + 60 * MIB


def test_a_killed_child_does_not_disturb(child: Child) -> None:
    sampler = ProcessSampler(child.pid)
    sampler.sample()
    os.kill(child.pid, signal.SIGKILL)
    child.end()
    (sample,) = sampler.sample()
    assert (sample.processes, sample.rss_bytes) == (0, None)


def test_descriptors_closed_behind_its_back_are_opened_again_and_nobody_elses_are_closed(
    child: Child, tmp_path: Path
) -> None:
    child.do("pass")
    before = set(os.listdir("/proc/self/fd"))
    sampler = ProcessSampler(child.pid)
    (first,) = sampler.sample()
    numbers = sorted(int(name) for name in set(os.listdir("/proc/self/fd")) - before)
    kept = [number for number in numbers if os.path.lexists(f"/proc/self/fd/{number}")]
    for number in kept:
        os.close(number)
    theirs = [os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT) for number in range(2)]
    for _ in range(3):
        (last,) = sampler.sample()
    assert (last.processes, last.threads, last.pid) == (first.processes, first.threads, child.pid)
    assert last.rss_bytes == first.rss_bytes
    sampler.close()
    for number in theirs:
        os.fstat(number)
        os.close(number)


def test_threads_of_this_process_are_counted() -> None:
    finish = threading.Event()
    (before,) = ProcessSampler().sample()
    thread = threading.Thread(target=finish.wait)
    thread.start()
    (during,) = ProcessSampler().sample()
    finish.set()
    thread.join()
    assert before.threads is not None
    assert during.threads == before.threads + 1
