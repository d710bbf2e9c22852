"""GPU drivers, whoever made the GPU: devices, memory, readings, how to open a driver and ask it, which GPUs a
process can see (by the variables that CUDA and ROCm obey), and how much memory a process tree uses.

The driver counts for everyone on the device: contexts, other processes and other users' jobs too. What one
process asked its framework for is the framework's to tell. Drivers that ask a vendor's library
(`GpuDriver`) stand forks, lost devices, and questions that fail alone.
"""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Flag, auto
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from flightlog.core.threads import ForkGate
from flightlog.samplers.procfs import PROC, parse_process_stat, read_once

ROOT = Path("/")


class Device(Struct, frozen=True, kw_only=True):
    """A GPU, or an instance of a partitioned one, that this process can see."""

    ordinal: int
    """As a framework numbers it in this process: `cuda:<ordinal>`."""
    index: int
    """As the driver counts on this host; of an instance the index of its GPU."""
    uuid: str | None = None
    name: str | None = None
    mig: str | None = None
    """UUID of the instance, where the device is one (MIG); `uuid` is that of its GPU then."""


class DeviceReading(Struct, frozen=True, kw_only=True):
    """A device at one moment. None is unknown: not supported, not permitted, or not asked for at this
    depth. Memory is that of everyone.
    """

    memory_used_bytes: int | None = None
    """In use by processes, without what the driver keeps for itself where it tells the two apart."""
    memory_free_bytes: int | None = None
    memory_total_bytes: int | None = None
    processes: Mapping[int, int | None] | None = None
    """Memory by process id, as the driver knows processes: in a container its ids may not be ours."""
    utilization_percent: float | None = None
    """Share of the driver's own last period (1/6 to 1 s) in which a kernel ran."""
    utilization_history: list[tuple[float, float]] | None = None
    """The same of each period that the driver remembers: when it ended, in seconds by the driver's clock, and
    percent."""
    memory_bus_percent: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    """A counter since the driver was loaded."""
    temperature_c: float | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: list[str] | None = None
    """What holds the clocks back; empty where nothing does."""
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    """Counters since the driver was loaded."""
    pcie_sent_bytes: int | None = None
    pcie_received_bytes: int | None = None
    """Counters, as the device sees it: received is what the host sent."""
    pcie_sent_bytes_per_s: float | None = None
    pcie_received_bytes_per_s: float | None = None
    """Rates over 20 ms, of devices without the counters, in deep readings alone."""

    def utilization_over(self, seconds: float) -> float | None:
        """Percent of so many seconds up to now in which a kernel ran, as far as the driver remembers; of its
        last period where it remembers none.
        """
        periods = sorted(self.utilization_history or ())
        if not periods:
            return self.utilization_percent
        ends = [ended for ended, _ in periods]
        lasts = min((later - ended for ended, later in pairwise(ends) if ended < later), default=0.0)
        since = ends[-1] - max(seconds, lasts) + lasts / 2
        found = [percent for ended, percent in periods if ended >= since]
        return sum(found) / len(found)


class Depth(Flag):
    """What a reading asks for beside memory: some questions cost the driver more than others."""

    MEMORY = 0
    RATES = auto()
    POWER = auto()
    PROCESSES = auto()
    COUNTERS = auto()
    """Energy, temperature, clocks, throttling, PCIe counters."""
    ERRORS = auto()
    """ECC errors, and PCIe rates where there are no counters, which take 20 ms each."""
    HISTORY = auto()
    """Utilization of the driver's last periods, which takes 2 ms."""
    BUSY = RATES | PROCESSES
    """What a task is measured by."""
    OFTEN = RATES | POWER
    SECOND = OFTEN | PROCESSES | COUNTERS
    """Worth asking once a second."""
    RARE = SECOND | ERRORS


class DriverFound(Struct, frozen=True):
    """What the search for a driver came to."""

    driver: GpuDriver | None
    note: str | None = None
    """Why there is none although a GPU seems to be there; None where none is expected."""


def open_driver() -> GpuDriver | None:
    """The driver of the GPUs this process can see; None where there are none, or they cannot be read."""
    return find_driver().driver


def find_driver(
    *, nvml: Any = None, amdsmi: Any = None, environ: Mapping[str, str] | None = None, root: Path = ROOT
) -> DriverFound:
    """The driver of the GPUs this process can see, or why there is none. Never raises.

    Takes up to a second where the driver has to wake up: call it off the user's thread. `nvml` and `amdsmi`
    are modules to use in place of the installed `pynvml` and `amdsmi`, which are imported only where `root`
    or the environment shows a sign of a GPU. Where both makers' GPUs can be seen, NVIDIA's are taken.
    """
    environ = os.environ if environ is None else environ
    notes: list[str] = []
    for maker, library in ((_NVIDIA, nvml), (_AMD, amdsmi)):
        sign = maker.sign(environ, root)
        if sign is not None and not maker.is_hidden(environ):
            found = _open(maker, library, sign, environ)
            if found.driver is not None:
                return found
            notes += filter(None, [found.note])
    return DriverFound(None, "; ".join(notes) or None)


def import_driver() -> None:
    """Import what the driver of a GPU takes that seems to be here, as far as that opens nothing; never
    raises.
    """
    with suppress(Exception):  # `find_driver` says what is wrong
        if not _NVIDIA.is_hidden(os.environ) and _NVIDIA.sign(os.environ, ROOT) is not None:
            import_module(_NVIDIA.module)
            import_module(_NVIDIA.driver[0])
        if _AMD.sign(os.environ, ROOT) is not None:
            import_module(_AMD.driver[0])


def may_have_gpu(environ: Mapping[str, str] | None = None, root: Path = ROOT) -> bool:
    """Whether a GPU could be used here: its device files are there and not hidden. Costs some
    microseconds.
    """
    environ = os.environ if environ is None else environ
    if _NVIDIA.file(root) is not None:
        return not _NVIDIA.is_hidden(environ)
    return _AMD.file(root) is not None


class _Maker(NamedTuple):
    """Whose GPUs, and how they are read."""

    name: str
    variables: tuple[str, ...]
    """Each of them may hide all GPUs."""
    module: str
    library: str
    """What messages call the module."""
    driver: tuple[str, str]
    """Module and class of ours."""
    mend: str
    files: tuple[str, ...]
    """Each of them is a sign of a GPU."""
    sign_by: str = ""
    """A variable that is a sign, too, except on a Mac."""

    def is_hidden(self, environ: Mapping[str, str]) -> bool:
        return any(hides_everything(environ.get(name)) for name in self.variables)

    def file(self, root: Path) -> str | None:
        # Cheap.
        return next((name for name in self.files if os.path.exists(f"{root}/{name}")), None)  # noqa: PTH110

    def sign(self, environ: Mapping[str, str], root: Path) -> str | None:
        there = self.file(root)
        if there is None and self.sign_by in environ and sys.platform != "darwin":
            return f"{self.sign_by} is {environ[self.sign_by]!r}"
        return None if there is None else f"/{there} is there"


_NVIDIA = _Maker(
    "NVIDIA",
    ("CUDA_VISIBLE_DEVICES",),
    "pynvml",
    "NVML",
    ("flightlog.samplers.gpu.nvml", "NvmlDriver"),
    "pip install 'flightlog[gpu]'",
    ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"),
    "CUDA_VISIBLE_DEVICES",
)
_AMD = _Maker(
    "AMD",
    ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "amdsmi",
    "AMD SMI",
    ("flightlog.samplers.gpu.amdsmi", "AmdDriver"),
    "pip install amdsmi (of your ROCm's version)",
    ("dev/kfd",),
)


def _open(maker: _Maker, library: Any, sign: str, environ: Mapping[str, str]) -> DriverFound:
    what = f"a GPU of {maker.name} seems to be here ({sign}), but it is not sampled"
    try:
        library = library or import_module(maker.module)
    # A broken installation may raise anything, and AMD's looks for its library when it is imported.
    except Exception as error:  # noqa: BLE001
        return DriverFound(None, f"{what}: {error}; {maker.mend}")
    module, name = maker.driver
    kind = getattr(import_module(module), name)
    try:
        return DriverFound(kind(library, environ))
    except Exception as error:  # noqa: BLE001 - a driver in a bad state may give any error
        return DriverFound(None, f"{what}: {maker.library} says: {str(error) or type(error).__name__}")


_NUMBER = re.compile(r"\s*\+?(\d+)")


class Gpu(NamedTuple):
    """A GPU of the host by the names that the variables may use: its place in the list, UUID, and
    instances.
    """

    uuid: str | None
    instances: Sequence[str] = ()


def hides_everything(variable: str | None) -> bool:
    """Whether the variable's first word already ends the list: empty, `-1`, `none` and the like."""
    if variable is None:
        return False
    word = variable.split(",", 1)[0].strip()
    return not (word.startswith(("GPU-", "MIG-")) or _NUMBER.match(word))


def visible(variable: str | None, gpus: Sequence[Gpu]) -> list[tuple[int, int | None]]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` (or `ROCR_VISIBLE_DEVICES`) leaves, in the order frameworks number
    them.

    Each is the place in `gpus`, and the place among its instances where it is one of a partitioned GPU (MIG):
    a partitioned GPU that is named as a whole, or not at all, is seen as its first instance, as CUDA does.

    Words are numbers (what follows the digits is not looked at), UUIDs or unambiguous beginnings of one,
    `MIG-` and the UUID of an instance; `MIG-GPU-<uuid>/<instance>/<compute instance>`, of drivers before 470,
    names nothing. The first word that names nothing, or more than one GPU, ends the list; a GPU named twice
    empties it. Not set is all.
    """
    if variable is None:
        return [(place, 0 if gpu.instances else None) for place, gpu in enumerate(gpus)]
    chosen: list[tuple[int, int | None]] = []
    for word in variable.split(","):
        found = _named(word.strip(), gpus)
        if found is None:
            break
        if found in chosen:
            return []
        chosen.append(found)
    return chosen


def visible_to_hip(environ: Mapping[str, str], gpus: Sequence[Gpu]) -> list[int]:
    """The places of the GPUs that ROCm's variables leave, in the order frameworks number them.

    `ROCR_VISIBLE_DEVICES` is obeyed first, by the lower layer; `HIP_VISIBLE_DEVICES`, or
    `CUDA_VISIBLE_DEVICES` where that is not set, then counts within what it left.
    """
    left = [place for place, _ in visible(environ.get("ROCR_VISIBLE_DEVICES"), gpus)]
    upper = environ.get("HIP_VISIBLE_DEVICES", environ.get("CUDA_VISIBLE_DEVICES"))
    return [left[place] for place, _ in visible(upper, [gpus[place] for place in left])]


def _named(word: str, gpus: Sequence[Gpu]) -> tuple[int, int | None] | None:
    whole = [(place, 0 if gpu.instances else None) for place, gpu in enumerate(gpus)]
    number = _NUMBER.match(word)
    if number is not None:
        return whole[int(number[1])] if len(number[1]) < 10 and int(number[1]) < len(gpus) else None
    known: list[tuple[str, tuple[int, int | None]]] = []
    if word.startswith("GPU-"):
        known = [(gpu.uuid, at) for gpu, at in zip(gpus, whole, strict=True) if gpu.uuid]
    elif word.startswith("MIG-"):
        known = [(uuid, (i, part)) for i, gpu in enumerate(gpus) for part, uuid in enumerate(gpu.instances)]
    named = [(uuid, at) for uuid, at in known if uuid.lower().startswith(word.lower())]
    named = [one for one in named if one[0] == word] or named
    return named[0][1] if len(named) == 1 else None


_FIRST_NAMESPACE = "pid:[4026531836]"
"""The kernel's number of the process namespace that a host starts with."""


class TreeMemory(Struct, frozen=True):
    """Device memory of a process tree."""

    used_bytes: int | None
    """None where the driver cannot tell: its process ids are not ours, or it keeps sizes to itself."""
    there: bool = False
    """Whether a process of the tree is on the device, as far as the driver can tell."""
    others: bool = True
    """Whether other processes are, or may be."""


UNKNOWN_TREE = TreeMemory(None)


def tree_memory(processes: Mapping[int, int | None] | None, root: int, proc: Path = PROC) -> TreeMemory:
    """What the process `root` and its descendants use, by the driver's list of processes with their memory.

    Drivers count processes as the host does. Inside a container the ids are other ones: a list without any
    process of the tree then says nothing, and the memory is None. On the host such a list says that the tree
    uses none: 0.
    """
    if processes is None:
        return UNKNOWN_TREE
    ours = [pid for pid in processes if descends(pid, root, proc)]
    if not ours:
        return TreeMemory(0 if _on_the_host(proc) else None, others=bool(processes))
    sizes = [processes[pid] for pid in ours]
    used = None if None in sizes else sum(size for size in sizes if size is not None)
    return TreeMemory(used, there=True, others=len(ours) < len(processes))


def descends(pid: int, root: int, proc: Path = PROC) -> bool:
    """Whether a process is `root` or descends from it, as far as parents are still there."""
    for _ in range(100):
        if pid == root:
            return True
        if pid <= 1:
            return False
        try:
            pid = parse_process_stat(read_once(f"{proc}/{pid}/stat")).ppid
        except (OSError, ValueError):
            return False
    return False


def _on_the_host(proc: Path) -> bool:
    try:
        return os.readlink(f"{proc}/self/ns/pid") == _FIRST_NAMESPACE  # noqa: PTH115 - it is no path
    except OSError:
        return False


Ask = Callable[..., Any]
"""Asks a function of the library about one device by name; None is no answer."""


class GpuDriver(ABC):
    """A driver, by its maker's library. Opening raises what the library raises; after that nothing does.

    One thread at a time. A forked child may go on using it: it opens the library again by itself, and never
    closes what it inherited.
    """

    library_name: str

    def __init__(self, library: Any, environ: Mapping[str, str]) -> None:
        self._library, self._environ = library, environ
        self._never: set[tuple[int, str]] = set()
        """Questions that a device will never answer."""
        self._notes: list[str] = []
        self._handles: list[Any] = []
        self._devices: list[Device] = []
        self._pid, self._reopen = -1, False
        with asking():
            self._open()

    @abstractmethod
    def _initialize(self) -> tuple[list[Any], list[Device]]:
        """Open the library; the handles of the devices that this process can see, and the devices."""

    @abstractmethod
    def _shut_down(self) -> None:
        """Close the library."""

    @abstractmethod
    def _verdict(self, error: Exception) -> Literal["never", "gone", "later"]:
        """What an error means: not supported or not permitted, the device is lost, or this time alone."""

    @abstractmethod
    def _fill(self, ask: Ask, depth: Depth, known: dict[str, Any]) -> None:
        """Put fields of a `DeviceReading` into `known`: memory first, then what this depth asks for."""

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong, in the order it was found, each thing once."""
        return tuple(self._notes)

    def devices(self) -> Sequence[Device]:
        """Those that this process can see, in the order frameworks number them in."""
        self._be_open()
        return tuple(self._devices)

    def read(self, device: Device, depth: Depth = Depth.RARE) -> DeviceReading:
        """What there is to know now, to this depth; where the device is lost in the middle of it, what was
        known until then.
        """
        self._be_open()
        known: dict[str, Any] = {}
        try:
            self._fill(partial(self._ask, device.ordinal), depth, known)
        except Gone as lost:
            self._note(
                f"GPU {device.index} ({device.name or 'of unknown name'}) does not answer any more: {lost}"
            )
        return DeviceReading(**known)

    def _ask(self, ordinal: int, name: str, *args: Any) -> Any:
        """The library's answer on a device, or None; `Gone` where the device is lost."""
        question = getattr(self._library, name, None)
        key = (ordinal, f"{name}{args}")
        if question is None or key in self._never:
            return None
        try:
            with asking():
                return question(self._handles[ordinal], *args)
        except AttributeError:  # an older library without the question, or a newer one that has dropped it
            self._never.add(key)
        except Exception as error:  # noqa: BLE001 - a library's own errors, sorted by what they mean
            verdict = self._verdict(error)
            if verdict == "gone":
                raise Gone(str(error)) from None
            if verdict == "never":
                self._never.add(key)
        return None

    def close(self) -> None:
        """Let the library go, if this process opened it."""
        if self._pid == os.getpid():
            with suppress(Exception), asking():
                self._shut_down()
            self._reopen = True

    def _open(self) -> None:
        handles, devices = self._initialize()
        self._pid, self._reopen = os.getpid(), False
        if len(handles) >= len(self._handles):  # devices once given out stay answerable
            self._handles, self._devices = handles, devices

    def _be_open(self) -> None:
        if self._reopen or self._pid != os.getpid():
            try:
                with asking():
                    self._open()
            except Exception as error:  # noqa: BLE001 - the driver may be in any state by now
                # The devices stay known; every question fails by itself until the driver is back.
                self._pid, self._reopen = os.getpid(), False
                self._note(f"{self.library_name} could not be opened again: {error}")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


asking = ForkGate(waits_s=0.02)
"""Around every call of a driver's library: a child that inherits its locks in the middle of one could never
ask by itself."""


class Gone(Exception):  # noqa: N818 - what happened to the device, caught where its reading is made
    """The device does not answer any more: asking it for more makes no sense at this moment."""
