"""Energy of processors and their memory, by the processors' own counters (RAPL)."""

from __future__ import annotations

from pathlib import Path

from flightlog.samplers.procfs import KeptFile, names_in, read_once

SYS = Path("/sys")
_ZONES = "intel-rapl:"
"""AMD's processors have theirs under the same name. `intel-rapl-mmio:*` shows the same counters another
way."""
_COUNTED = ("package", "dram")
"""Zones that do not overlap: `core` and `uncore` are parts of a package, and `psys` holds packages and
more."""


class ProcessorEnergy:
    """Adds up the energy counters of all processors of the node; one thread.

    Most kernels let root alone read them. A counter wraps around within minutes to hours of full load: read
    it more often than that, once a minute at least.
    """

    def __init__(self, sys: Path = SYS) -> None:
        self._zones = [zone for path in _paths(sys) if (zone := _Zone.at(path)) is not None]

    def joules(self) -> float | None:
        """A sum that only grows, from an arbitrary start; None where there is no counter, or one cannot be
        read.
        """
        read = [zone.microjoules() for zone in self._zones]
        known = [one for one in read if one is not None]
        return sum(known) / 1e6 if known and len(known) == len(read) else None

    def close(self) -> None:
        """Let descriptors go; the next reading opens them again."""
        for zone in self._zones:
            zone.file.close()


class _Zone:
    """One counter, unwrapped."""

    def __init__(self, file: KeptFile, range_uj: int | None) -> None:
        self.file, self._range_uj = file, range_uj
        self._last: int | None = None
        self._sum = 0

    @classmethod
    def at(cls, path: Path) -> _Zone | None:
        """The counter of a zone; None where it is none of those that are counted."""
        try:
            name = read_once(str(path / "name")).strip().decode("ascii", "replace")
        except OSError:
            return None
        if not name.startswith(_COUNTED):
            return None
        try:
            range_uj: int | None = _whole(read_once(str(path / "max_energy_range_uj")))
        except (OSError, ValueError):
            range_uj = None
        return cls(KeptFile(path / "energy_uj"), range_uj)

    def microjoules(self) -> int | None:
        """The counter as if it never wrapped; None where it cannot be read now."""
        try:
            now = _whole(self.file.read())
        except OSError:
            return None
        except ValueError:
            # Perhaps somebody closed our descriptor, and its number means another file now.
            self.file.close()
            return None
        if self._last is None or now >= self._last:
            self._sum += now - (self._last or 0)
        elif self._range_uj is not None and self._range_uj >= self._last:
            self._sum += now + self._range_uj - self._last
        else:  # set back to 0, not wrapped: what it says it has counted since
            self._sum += now
        self._last = now
        return self._sum


def _whole(data: bytes) -> int:
    text = data.strip()
    if not text.isdigit() or len(text) > 20:
        raise ValueError(f"no counter: {data[:40]!r}")
    return int(text)


def _paths(sys: Path) -> list[Path]:
    try:
        folder = sys / "class" / "powercap"
        return sorted(folder / name for name in names_in(str(folder)) if name.startswith(_ZONES))
    except OSError:
        return []
