from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_machine import MIB, write

from flightlog.samplers.usage import Usage, UsageMeter, look_at_meters, max_rss_bytes


def _burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def _started(proc: Path = Path("/proc")) -> UsageMeter:
    meter = UsageMeter(proc)
    meter.start()
    return meter


def test_a_task_alone_has_the_cpu_of_its_process() -> None:
    meter = _started()
    _burn(0.05)
    usage = meter.stop()
    assert usage.cpu_scope == "process"
    assert usage.cpu_s is not None
    assert 0.05 <= usage.cpu_s < 1


def test_what_a_thread_did_is_on_a_cpu_waiting_for_one_or_blocked() -> None:
    meter, began = _started(), time.perf_counter()
    _burn(0.05)
    time.sleep(0.05)
    usage, took = meter.stop(), time.perf_counter() - began
    assert usage.thread_cpu_s is not None
    assert usage.rss_before_bytes is not None
    assert 0.05 <= usage.thread_cpu_s < took
    if Path("/proc/self/schedstat").exists():
        assert usage.cpu_wait_s is not None
        assert 0 <= usage.cpu_wait_s <= took - usage.thread_cpu_s


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_THREAD"), reason="only Linux counts by thread")
def test_a_thread_that_waits_gives_its_cpu_up() -> None:
    meter = _started()
    for _ in range(5):
        time.sleep(0.001)
    usage = meter.stop()
    assert usage.voluntary_switches is not None
    assert usage.voluntary_switches >= 5
    assert None not in (usage.involuntary_switches, usage.major_faults)


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="this kernel does not tell")
def test_blocked_time_is_split_by_what_the_thread_was_seen_to_wait_for() -> None:
    release, found, meters = threading.Event(), list[Usage](), list[UsageMeter]()

    def wait() -> None:
        meters.append(_started())
        release.wait(60)
        found.append(meters[0].stop())

    thread = threading.Thread(target=wait)
    thread.start()
    until = time.monotonic() + 60
    while not (meters and meters[0]._blocked) and time.monotonic() < until:
        look_at_meters()
    release.set()
    thread.join()
    (usage,) = found
    assert usage.lock_wait_s is not None
    assert usage.lock_wait_s > 0
    assert (usage.sleep_s, usage.io_wait_s) == (0.0, 0.0)
    unseen = _started().stop()
    assert (unseen.sleep_s, unseen.lock_wait_s, unseen.io_wait_s) == (None, None, None)


def test_of_tasks_on_one_thread_nobody_can_tell_whose_its_time_was() -> None:
    outer = _started()
    inner = _started()
    _burn(0.01)
    usages = [inner.stop(), outer.stop()]
    assert [(one.thread_cpu_s, one.cpu_wait_s, one.major_faults) for one in usages] == [(None,) * 3] * 2
    assert _started().stop().thread_cpu_s is not None


def test_more_threads_than_files_are_kept_for_are_measured_all_the_same() -> None:
    found: list[Usage] = []

    def measure() -> None:
        for _ in range(20):
            found.append(_started().stop())

    every = [threading.Thread(target=measure) for _ in range(100)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in every:
            thread.start()
        for thread in every:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(found) == 2_000
    assert all(one.thread_cpu_s is not None for one in found)


def test_the_threads_a_lone_task_starts_are_its_own() -> None:
    meter = _started()
    thread = threading.Thread(target=_burn, args=(0.05,))
    thread.start()
    thread.join()
    usage = meter.stop()
    assert usage.cpu_scope == "process"
    assert usage.cpu_s is not None
    assert usage.cpu_s >= 0.05


def test_the_children_a_lone_task_waits_for_are_its_own() -> None:
    meter = _started()
    burn = "import time\nwhile time.process_time() < 0.1: pass"
    subprocess.run([sys.executable, "-S", "-c", burn], check=True)
    usage = meter.stop()
    assert usage.cpu_scope == "tree"
    assert usage.cpu_s is not None
    assert usage.cpu_s >= 0.1


def test_the_memory_of_a_larger_child_is_its_own() -> None:
    meter = _started()
    size = max(max_rss_bytes(), max_rss_bytes(resource.getrusage(resource.RUSAGE_CHILDREN))) + 32 * MIB
    subprocess.run([sys.executable, "-S", "-c", f"bytearray({size})"], check=True)
    usage = meter.stop()
    assert usage.rss_scope == "tree_at_least"
    assert usage.peak_rss_bytes is not None
    assert usage.peak_rss_bytes >= size
    meter = _started()
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    assert meter.stop().rss_scope in ("process", "process_at_least")


def test_tasks_that_run_at_once_have_the_cpu_of_their_threads() -> None:
    first = _started()
    usages: list[Usage] = []

    def second() -> None:
        meter = _started()
        _burn(0.05)
        usages.append(meter.stop())

    thread = threading.Thread(target=second)
    thread.start()
    thread.join()
    usages.append(first.stop())
    (busy, idle) = usages
    assert (busy.cpu_scope, idle.cpu_scope) == ("thread", "thread")
    assert (busy.read_bytes, idle.write_bytes) == (None, None)
    assert busy.cpu_s is not None
    assert idle.cpu_s is not None
    assert idle.cpu_s < 0.05 <= busy.cpu_s


def test_a_task_that_met_another_at_any_moment_was_not_alone() -> None:
    outer = _started()
    _started().stop()
    assert outer.stop().cpu_scope == "thread"
    assert _started().stop().cpu_scope == "process"


def test_a_shared_task_that_ends_on_another_thread_has_no_cpu() -> None:
    meter = _started()
    _started().stop()
    usages: list[Usage] = []
    thread = threading.Thread(target=lambda: usages.append(meter.stop()))
    thread.start()
    thread.join()
    assert (usages[0].cpu_s, usages[0].cpu_scope) == (None, None)


def test_a_meter_that_was_dropped_does_not_count_as_running() -> None:
    abandoned = _started()
    del abandoned
    assert _started().stop().cpu_scope == "process"


def test_a_new_peak_is_exact_and_an_old_one_leaves_a_lower_bound() -> None:
    code = (
        "from flightlog.samplers.usage import UsageMeter\n"
        "for size in (64, 16):\n"
        "    meter = UsageMeter(); meter.start()\n"
        f"    x = b'x' * (size * {MIB}); del x\n"
        "    usage = meter.stop()\n"
        "    print(usage.rss_scope, usage.peak_rss_bytes)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    (first, first_bytes), (second, second_bytes) = (line.split() for line in printed.splitlines())
    assert (first, second) == ("process", "process_at_least")
    assert int(first_bytes) > 64 * MIB > int(second_bytes) > MIB


def test_bytes_that_reach_storage_are_counted(tmp_path: Path) -> None:
    own = tmp_path / str(os.getpid())
    write(own / "status", "VmHWM: 10 kB\nVmRSS: 5 kB\n")
    write(own / "io", "rchar: 0\nread_bytes: 10\nwrite_bytes: 20\n")
    meter = _started(tmp_path)
    write(own / "io", "rchar: 0\nread_bytes: 17\nwrite_bytes: 29\n")
    usage = meter.stop()
    assert (usage.read_bytes, usage.write_bytes) == (7, 9)


@pytest.mark.parametrize("text", ["", "garbage", "a b c"])
def test_without_readable_counters_bytes_are_unknown(tmp_path: Path, text: str) -> None:
    own = tmp_path / str(os.getpid())
    write(own / "status", text)
    write(own / "io", text)
    for proc in (tmp_path, tmp_path / "absent"):
        usage = _started(proc).stop()
        assert (usage.cpu_scope, usage.read_bytes, usage.write_bytes) == ("process", None, None)


def test_counters_closed_behind_our_back_are_opened_again(tmp_path: Path) -> None:
    own = tmp_path / str(os.getpid())
    write(own / "status", "VmHWM: 10 kB\nVmRSS: 5 kB\n")
    write(own / "io", "rchar: 0\nread_bytes: 10\nwrite_bytes: 20\n")
    _started(tmp_path).stop()
    for number in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{number}"
        if os.path.lexists(link) and os.readlink(link).startswith(str(own)):
            os.close(int(number))
    usages = [_started(tmp_path).stop() for _ in range(3)]
    assert (usages[-1].read_bytes, usages[-1].write_bytes) == (0, 0)


def test_a_meter_without_a_start_or_stopped_twice_knows_nothing() -> None:
    meter = _started()
    meter.stop()
    assert meter.stop() == UsageMeter().stop() == Usage()


def test_many_meters_keep_no_more_descriptors_than_one() -> None:
    _started().stop()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        _started().stop()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_forked_child_measures_itself_and_not_its_parent() -> None:
    meter = _started()
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        inherited = meter.stop()
        own = _started()
        big = b"x" * (8 * MIB)
        usage = own.stop()
        os.write(
            into,
            f"{inherited == Usage()} {usage.cpu_scope} {usage.read_bytes is not None} {len(big)}".encode(),
        )
        os._exit(0)
    os.waitpid(pid, 0)
    told = os.read(out, 1000).decode()
    os.close(out)
    os.close(into)
    assert told == f"True process True {8 * MIB}"
    assert meter.stop().cpu_scope in ("process", "tree")


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="reads /proc")
def test_what_a_task_uses_after_many_that_use_nothing_is_seen_at_once(tmp_path: Path) -> None:
    """Files of the kernel are not read again while its counts say that nothing has changed."""
    code = f"""\
import time
from pathlib import Path
from flightlog.samplers.usage import UsageMeter
def measured(task):
    meter = UsageMeter()
    meter.start()
    kept = task()
    return meter.stop()
assert {{measured(lambda: None).write_bytes for _ in range(200)}} == {{0}}
grown = measured(lambda: b"x" * (64 * {MIB}))
assert grown.rss_scope == "process"
assert grown.peak_rss_bytes - grown.rss_before_bytes > 60 * {MIB}
time.sleep(0.05)  # what was freed shows a little later
assert measured(lambda: None).rss_before_bytes < grown.peak_rss_bytes - 30 * {MIB}
written = measured(lambda: Path("file").write_bytes(b"x" * 100_000)).write_bytes
assert written == 0 or 100_000 <= written < 200_000, written  # a folder in memory counts nothing
waits = [measured(lambda: time.sleep(0.001)).cpu_wait_s for _ in range(20)]
assert None in waits or all(0 <= wait < 10 for wait in waits), waits
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
