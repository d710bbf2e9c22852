"""The recorder's two background threads: the pulse that keeps the files fresh, and the sampler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from flightlog import threads
from flightlog.events import ResourceSample
from flightlog.interruption import pass_interruption
from flightlog.record.values import class_name, error_text
from flightlog.samplers import Sampler
from flightlog.samplers.fork_gate import ForkGate

BEAT_S = 0.4
"""Interval of the pulse: open spans and the heartbeat reach the disk within a second."""

_loading = ForkGate(waits_s=2.0)
"""Around what imports modules: a child that is forked in the middle of an import could never import them by itself."""


class Ticker:
    """Calls a function at once and then at an interval, on a daemon thread, until stopped; counts its CPU time.

    Not in a subinterpreter, which has to be without threads when it ends.
    """

    def __init__(
        self, name: str, interval_s: float, tick: Callable[[], None], trouble: Callable[[str, str], None]
    ) -> None:
        self.cpu_s = 0.0
        self._name, self._interval_s, self._tick, self._trouble = name, interval_s, tick, trouble
        self._stop = threads.Event()
        self._thread = threads.Thread(target=self._run, name=name)
        if threads.in_main_interpreter():
            self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Let the tick in progress end, and no other begin."""
        self._stop.set()
        if not self._thread.is_current():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            try:
                self._tick()
            except BaseException as error:  # noqa: BLE001 - the pulse must go on, whatever one beat met
                self._trouble(self._name, f"{self._name} met {error_text(error)} and goes on")
            self.cpu_s = time.thread_time()
            due = max(due + self._interval_s, time.monotonic())
            if self._stop.wait(max(due - time.monotonic(), self._interval_s / 10)):
                return


class Sampling:
    """Samples the machine at an interval, from a first sample at once to a final one at the end."""

    def __init__(
        self,
        samplers: Callable[[], Sequence[Sampler]],
        interval_s: float,
        emit: Callable[[ResourceSample], None],
        trouble: Callable[[str, str], None],
    ) -> None:
        self._make, self._samplers = samplers, list[Sampler]()
        self._emit, self._trouble = emit, trouble
        self._made = False
        self._lock = threads.Lock()
        self._ticker = Ticker("flightlog-sampler", interval_s, self._sample, trouble)

    @property
    def cpu_s(self) -> float:
        """CPU time the sampling thread has used."""
        return self._ticker.cpu_s

    def stop(self) -> None:
        """Take the final sample and end; a sampler that hangs is left to hang."""
        self._ticker.stop(timeout_s=1.0)
        self._sample(final=True)
        for sampler in self._samplers:
            close = getattr(sampler, "close", None)
            if close is not None:
                close()

    def _sample(self, final: bool = False) -> None:
        if not self._lock.acquire(timeout=0.5):
            self._trouble("sampling", "a sampler hangs: there is no final sample")
            return
        try:
            if self._made:
                self._take(final)
            else:
                self._made = True
                with _loading():
                    self._samplers.extend(self._make())
                    self._take(final)  # what a sampler needs it may load with its first sample
        finally:
            self._lock.release()

    def _take(self, final: bool) -> None:
        for sampler in list(self._samplers):
            try:
                take = getattr(sampler, "last_sample", sampler.sample) if final else sampler.sample
                for sample in take():
                    sample.final = final
                    self._emit(sample)
                for text in getattr(sampler, "notes", ()):
                    self._trouble(text, text)
            except BaseException as error:  # noqa: BLE001 - a sampler that fails is left out, the others go on
                pass_interruption(error)
                self._samplers = [one for one in self._samplers if one is not sampler]
                name = class_name(type(sampler))
                self._trouble(
                    f"sampler {name}", f"sampler {name} failed and is left out: {error_text(error)}"
                )
