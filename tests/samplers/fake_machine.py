"""A `/proc` and a cgroup tree made of plain files, and a clock that a test turns."""

from __future__ import annotations

import shutil
from pathlib import Path

PAGE = 4096
MIB = 1 << 20


class FakeClock:
    """A clock that stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_node(
    proc: Path,
    *,
    cpu: str = "100 0 50 800 50 0 0 0 0 0",
    memory: str = "MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable: 6000 kB\n"
    "SwapTotal: 100 kB\nSwapFree: 40 kB\n",
    disks: str = "",
    net: str = "",
    load: str = "0.50 0.10 0.00 1/99 4242\n",
    pressure: tuple[int, int, int] | None = None,
) -> None:
    """The node's files under a fake `/proc`; pressure on CPU, memory and I/O in microseconds so far."""
    for name, total in zip(("cpu", "memory", "io"), pressure or (), strict=False):
        write(proc / "pressure" / name, pressure_text(total))
    write(proc / "stat", f"cpu  {cpu}\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5 6\nctxt 7\n")
    write(proc / "meminfo", memory)
    write(proc / "loadavg", load)
    write(proc / "diskstats", disks)
    write(proc / "net" / "dev", "Inter-|   Receive  |  Transmit\n face |bytes packets\n" + net)


def pressure_text(total_us: int) -> str:
    """The kernel's pressure stall information of one resource."""
    full = f"full avg10=0.00 avg60=0.00 avg300=0.00 total={total_us // 2}\n"
    return f"some avg10=0.42 avg60=0.10 avg300=0.02 total={total_us}\n{full}"


def write_energy(
    sys: Path, zone: str, name: str, microjoules: int, range_uj: int | None = 262_143_328_850
) -> None:
    """An energy counter under a fake `/sys`."""
    folder = sys / "class" / "powercap" / zone
    write(folder / "name", f"{name}\n")
    write(folder / "energy_uj", f"{microjoules}\n")
    if range_uj is not None:
        write(folder / "max_energy_range_uj", f"{range_uj}\n")


def disk(name: str, read_sectors: int, written_sectors: int) -> str:
    return f"   8       0 {name} 10 2 {read_sectors} 3 4 5 {written_sectors} 6 0 7 8 0 0 0 0 0 0\n"


def interface(name: str, received: int, sent: int) -> str:
    return f"{name:>6}: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"


def write_process(
    proc: Path,
    pid: int,
    ppid: int = 1,
    *,
    name: str = "python",
    state: str = "S",
    cpu: int = 0,
    waited: int = 0,
    threads: int = 1,
    start: int = 500,
    pages: int = 10,
    read: int = 0,
    written: int = 0,
    peak_kib: int | None = None,
    children: str | None = "",
) -> None:
    """One process under a fake `/proc`; `children` None is a kernel that does not list them."""
    folder = proc / str(pid)
    write(
        folder / "stat",
        f"{pid} ({name}) {state} {ppid} {pid} {pid} 0 -1 4194304 1 2 3 4 {cpu} 0 {waited} 0 20 0 {threads} 0 "
        f"{start} 1000000 {pages} 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 "
        "0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    )
    write(folder / "statm", f"9999 {pages} 5 1 0 123 0\n")
    write(
        folder / "io",
        f"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: {read}\nwrite_bytes: {written}\n"
        "cancelled_write_bytes: 0\n",
    )
    if peak_kib is not None:
        write(folder / "status", f"Name:\t{name}\nVmPeak:\t 9 kB\nVmHWM:\t {peak_kib} kB\nVmRSS:\t 1 kB\n")
    task = folder / "task" / str(pid)
    task.mkdir(parents=True, exist_ok=True)
    if children is not None:
        write(task / "children", children)


def remove_process(proc: Path, pid: int) -> None:
    shutil.rmtree(proc / str(pid))


def write_cgroup(folder: Path, **files: str) -> None:
    """A cgroup's files; `memory_current` stands for `memory.current`."""
    write(folder / "cgroup.controllers", "cpu memory\n")
    for name, text in files.items():
        prefix, _, rest = name.partition("_")
        write(folder / f"{prefix}.{rest.replace('_', '.')}", text)
