"""What sampling one GPU at 100 ms costs, as a share of a core; `python -m bench.gpu` on a machine with a
GPU."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.gpu.driver import Depth, Device, GpuDriver, find_driver, may_have_gpu
from flightlog.samplers.gpu.task import GpuWatch

SECONDS, INTERVAL_S = 20.0, 0.1


def measure(seconds: float = SECONDS) -> dict[str, float] | None:
    """Percent of a core by the sampling thread, and by the thread that watches tasks; None without a GPU.

    Of all visible GPUs, and of one: a sampler's work grows with their number. Both threads keep the pace that
    they have in a recorded run at 100 ms.
    """
    if not may_have_gpu():
        return None
    driver = find_driver().driver
    devices = len(driver.devices()) if driver is not None else 0
    if driver is None or not devices:
        return None
    sampler = GpuSampler(first_look_s=60)
    if not sampler.sample():
        return None
    sampling = _share(sampler.sample, seconds)
    watch = GpuWatch(spawn=lambda _watch: None)
    watch.open()
    task = watch.begin()
    watching = _share(watch.look, seconds)
    task.stop()
    sampler.close()
    return {
        "devices": devices,
        "sampling_percent_of_core": sampling,
        "sampling_one_gpu_percent_of_core": sampling / devices,
        "watching_tasks_percent_of_core": watching,
        "watching_tasks_one_gpu_percent_of_core": watching / devices,
        **_questions(driver, driver.devices()[0]),
        "begin_and_stop_of_a_task_us": _each_us(lambda: watch.begin().stop(), 2000),
    }


def _share(work: Callable[[], object], seconds: float) -> float:
    """CPU time of a thread that does the work at the interval, in percent of the time it took."""
    spent: list[float] = []

    def run() -> None:
        begun, cpu = time.monotonic(), time.thread_time()
        due = begun
        while due < begun + seconds:
            work()
            due += INTERVAL_S
            time.sleep(max(0.0, due - time.monotonic()))
        spent.append(100 * (time.thread_time() - cpu) / (time.monotonic() - begun))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return spent[0]


def _questions(driver: GpuDriver, device: Device) -> dict[str, float]:
    """Microseconds of wall time of each kind of reading."""
    return {
        "memory_us": _each_us(lambda: driver.read(device, Depth.MEMORY)),
        "busy_us": _each_us(lambda: driver.read(device, Depth.BUSY)),
        "read_often_us": _each_us(lambda: driver.read(device, Depth.OFTEN)),
        "read_second_us": _each_us(lambda: driver.read(device, Depth.SECOND)),
        "read_rare_us": _each_us(lambda: driver.read(device, Depth.RARE), 20),
    }


def _each_us(work: Callable[[], object], times: int = 200) -> float:
    work()
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun) / times * 1e6


def main() -> int:
    """Print the figures; 1 if the budget of 1 % of a core for one GPU is missed."""
    found = measure()
    if found is None:
        print("no GPU here:", find_driver().note or "nothing to measure")
        return 0
    for what, value in found.items():
        print(f"{what:<42} {value:>12,.3f}")
    return 0 if found["sampling_one_gpu_percent_of_core"] < 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
