"""Kills for memory as the kernel counts them, in cgroups of version 1 and 2."""

from __future__ import annotations

from pathlib import Path

from flightlog.samplers.cgroup import OomKills, oom_kills


def machine(folder: Path, membership: str, **files: str) -> tuple[Path, Path]:
    """A folder of cgroups and one of processes, with this process in a cgroup of these files."""
    proc, cgroups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(membership)
    cgroups.mkdir()
    for name, content in files.items():
        file = cgroups / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return cgroups, proc


def test_version_1_counts_kills_beside_its_control_of_them(tmp_path):
    said = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    cgroups, proc = machine(tmp_path, "4:memory:/job\n0::/\n", memory__job__memory_DOT_oom_control=said)
    assert oom_kills(cgroups, proc) == 3
    kills = OomKills(cgroups, proc)
    assert kills.claim() is None
    (cgroups / "memory" / "job" / "memory.oom_control").write_text(said.replace("3", "4"))
    assert kills.claim() == "by the kernel's OOM killer: oom_kill of its cgroup rose"
    assert kills.claim() is None


def test_version_2_counts_them_among_its_events(tmp_path):
    events = "low 0\noom 2\noom_kill 1\n"
    cgroups, proc = machine(
        tmp_path,
        "0::/job\n",
        cgroup_DOT_controllers="memory\n",
        job__memory_DOT_events=events,
        job__memory_DOT_current="1\n",
    )
    assert oom_kills(cgroups, proc) == 1


def test_where_nobody_counts_it_is_unknown(tmp_path):
    assert oom_kills(*machine(tmp_path, "0::/\n")) is None
