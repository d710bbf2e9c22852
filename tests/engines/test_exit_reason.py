"""What a worker died of, from its exit code and the kernel's counters."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from flightlog.engines.processes import ExitReason, describe_exit
from flightlog.samplers.cgroup import OomKills


class Machine:
    """Counters of the kernel in a folder."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").write_text("0::/job\n")
        (self.cgroups / "job").mkdir(parents=True)
        (self.cgroups / "cgroup.controllers").write_text("memory\n")
        (self.cgroups / "job" / "memory.current").write_text("1\n")
        self.say(in_cgroup=3, on_host=5)

    def say(self, *, in_cgroup: int, on_host: int) -> None:
        events = f"low 0\noom 9\noom_kill {in_cgroup}\noom_group_kill 0\n"
        (self.cgroups / "job" / "memory.events").write_text(events)
        (self.proc / "vmstat").write_text(f"nr_free_pages 1\noom_kill {on_host}\n")

    def oom_kills(self) -> OomKills:
        return OomKills(self.cgroups, self.proc)


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


KILLED = ExitReason("its process was killed by SIGKILL", signal="SIGKILL")
BY_OOM = ExitReason(
    "its process was killed by SIGKILL by the kernel's OOM killer: oom_kill of its cgroup rose",
    signal="SIGKILL",
)
BESIDE_OOM = ExitReason(
    "its process was killed by SIGKILL while the kernel's OOM killer was at work on this host",
    signal="SIGKILL",
)


@pytest.mark.parametrize(
    ("exit_code", "death"),
    [
        (3, ExitReason("its process ended with exit code 3", exit_code=3)),
        (0, ExitReason("its process ended with exit code 0", exit_code=0)),
        (-signal.SIGSEGV, ExitReason("its process was killed by SIGSEGV", signal="SIGSEGV")),
        (-signal.SIGKILL, KILLED),
        (-63, ExitReason("its process was killed by SIG63", signal="SIG63")),
        (None, ExitReason("its process is gone; nobody saw how it ended")),
    ],
)
def test_a_death_says_its_exit_code_or_its_signal(machine, exit_code, death):
    assert describe_exit(exit_code, machine.oom_kills()) == death


def test_each_oom_kill_of_the_cgroup_is_laid_to_one_death(machine):
    oom = machine.oom_kills()
    machine.say(in_cgroup=5, on_host=7)
    assert [describe_exit(-9, oom) for _ in range(3)] == [BY_OOM, BY_OOM, KILLED]


def test_an_oom_kill_elsewhere_on_the_host_is_only_mentioned(machine):
    oom = machine.oom_kills()
    machine.say(in_cgroup=3, on_host=6)
    assert [describe_exit(-9, oom), describe_exit(-9, oom)] == [BESIDE_OOM, KILLED]


def test_other_signals_than_sigkill_are_not_laid_to_the_oom_killer(machine):
    oom = machine.oom_kills()
    machine.say(in_cgroup=4, on_host=6)
    assert describe_exit(-15, oom) == ExitReason("its process was killed by SIGTERM", signal="SIGTERM")
    assert describe_exit(-9, oom) == BY_OOM


def test_where_the_kernel_tells_nothing_the_signal_alone_is_said(tmp_path):
    assert describe_exit(-9, OomKills(tmp_path / "none", tmp_path / "none")) == KILLED
