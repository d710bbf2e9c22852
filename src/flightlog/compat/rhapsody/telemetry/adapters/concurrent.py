"""Samples of this machine, for the concurrent backend."""

from __future__ import annotations

import logging
import threading

from flightlog.compat.limits import CompatLimits
from flightlog.compat.rhapsody.telemetry.adapters.base import EmittingAdapter, MachineSamples

log = logging.getLogger(__name__)


class ConcurrentTelemetryAdapter(EmittingAdapter):
    """CPU, memory, disk, network and GPUs of this machine, sampled on a daemon thread.

    One sample almost at once, then one every `interval` seconds. What the machine does not tell is None.
    """

    def __init__(self, session_id: str, backend_name: str, interval: float = 5.0) -> None:
        super().__init__(session_id, backend_name, interval)
        self._over = threading.Event()

    def start(self) -> None:
        """Start sampling."""
        self._over.clear()
        threading.Thread(target=self._sample, name="telemetry-concurrent-adapter", daemon=True).start()

    def stop(self) -> None:
        """Stop sampling."""
        self._over.set()

    def _sample(self) -> None:
        machine = MachineSamples()
        noted: list[str] = []
        self._over.wait(min(self._interval, CompatLimits.first_sample_s))
        while True:
            try:
                for sample in machine.take():
                    self._emit(**sample)
            except Exception:
                log.debug("a sample of this machine is missing", exc_info=True)
            # Where there is a run, which samples the GPUs too, that says what is wrong with them.
            if self._manager is not None and self._manager.run_path is None and machine.notes != noted:
                noted = machine.notes
                log.warning("%s", "; ".join(noted))
            if self._over.wait(self._interval):
                break
        machine.close()
