"""Drivers that ask a vendor's library: opening it, forks, lost devices, questions that may fail alone."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from flightlog.core.threads import ForkGate
from flightlog.samplers.gpu.driver import Depth, Device, DeviceMemoryReading, DeviceReading

Ask = Callable[..., Any]
"""Asks a function of the library about one device by name; None is no answer."""


class LibraryDriver(ABC):
    """A `GpuDriver` by a library. Opening raises what the library raises; after that nothing does.

    A forked child opens the library again by itself, and never closes what it inherited.
    """

    library_name: str

    def __init__(self, library: Any, environ: Mapping[str, str]) -> None:
        self._library, self._environ = library, environ
        self._answers = Answers(self._verdict)
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
    def _verdict(self, error: Exception) -> str:
        """What an error means; see `Answers`."""

    @abstractmethod
    def _memory_of(self, device: Device) -> DeviceMemoryReading:
        """Memory now; `Gone` where the device is lost."""

    @abstractmethod
    def _read_rates(self, ask: Ask, known: dict[str, Any]) -> None:
        """How busy the device is."""

    @abstractmethod
    def _read_processes(self, ask: Ask, known: dict[str, Any]) -> None:
        """Who is on it."""

    @abstractmethod
    def _read_all(self, ask: Ask, depth: Depth, known: dict[str, Any]) -> None:
        """Everything, to this depth."""

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong."""
        return tuple(self._notes)

    def devices(self) -> Sequence[Device]:
        """Those that this process can see."""
        self._be_open()
        return tuple(self._devices)

    def memory(self, device: Device) -> DeviceMemoryReading:
        """Memory now."""
        self._be_open()
        try:
            return self._memory_of(device)
        except Gone as lost:
            self._note_lost(device, lost)
            return DeviceMemoryReading()

    def busy(self, device: Device) -> DeviceReading:
        """Memory, utilization and processes now."""

        def fill(ask: Ask, known: dict[str, Any]) -> None:
            self._read_rates(ask, known)
            self._read_processes(ask, known)

        return self._reading(device, fill)

    def read(self, device: Device, depth: Depth = Depth.RARE) -> DeviceReading:
        """All there is to know now, to this depth."""
        return self._reading(device, lambda ask, known: self._read_all(ask, depth, known))

    def _reading(self, device: Device, fill: Callable[[Ask, dict[str, Any]], None]) -> DeviceReading:
        """What `fill` comes to know; where the device is lost in the middle of it, what it knew until
        then.
        """
        self._be_open()
        ordinal = device.ordinal

        def ask(name: str, *args: Any) -> Any:
            question = getattr(self._library, name, None)
            if question is None:
                return None
            return self._answers.ask(ordinal, f"{name}{args}", question, self._handles[ordinal], *args)

        known: dict[str, Any] = {}
        try:
            memory = self._memory_of(device)
            known["memory_used_bytes"], known["memory_free_bytes"] = memory.used_bytes, memory.free_bytes
            known["memory_total_bytes"] = memory.total_bytes
            known["memory_reserved_bytes"] = memory.reserved_bytes
            fill(ask, known)
        except Gone as lost:
            self._note_lost(device, lost)
        return DeviceReading(
            index=device.index,
            uuid=device.uuid,
            name=device.name,
            pci_bus_id=device.pci_bus_id,
            mig=device.mig,
            **known,
        )

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

    def _note_lost(self, device: Device, lost: Gone) -> None:
        self._note(
            f"GPU {device.index} ({device.name or 'of unknown name'}) does not answer any more: {lost}"
        )

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)


T = TypeVar("T")

asking = ForkGate(waits_s=0.02)
"""Around every call of a driver's library: a child that inherits its locks in the middle of one could never
ask by itself."""


class Gone(Exception):  # noqa: N818 - what happened to the device, caught where its reading is made
    """The device does not answer any more: asking it for more makes no sense at this moment."""


class Answers:
    """Asks questions and remembers which ones a device will never answer; one thread at a time.

    `verdict` says of an error what it means: `never` (not supported, not permitted), `gone` (the device is
    lost) or `later` (this time alone).
    """

    def __init__(self, verdict: Callable[[Exception], str]) -> None:
        self._verdict = verdict
        self._never: set[tuple[int, str]] = set()

    def ask(self, ordinal: int, name: str, question: Callable[..., T], *args: Any) -> T | None:
        """The answer, or None; `Gone` where the device is lost."""
        if (ordinal, name) in self._never:
            return None
        try:
            with asking():
                return question(*args)
        except AttributeError:  # an older library without the question, or a newer one that has dropped it
            self._never.add((ordinal, name))
        except Exception as error:  # noqa: BLE001 - a library's own errors, sorted by what they mean
            verdict = self._verdict(error)
            if verdict == "gone":
                raise Gone(str(error)) from None
            if verdict == "never":
                self._never.add((ordinal, name))
        return None
