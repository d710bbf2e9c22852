from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from flightlog.record.environment import (
    VARIABLES,
    Environment,
    find_checkout,
    read_environment,
    read_identity,
    read_packages,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40
CPUINFO = """\
processor\t: 0
model name\t: Fast CPU 9000
physical id\t: 0
core id\t\t: 0

processor\t: 1
model name\t: Fast CPU 9000
physical id\t: 0
core id\t\t: 0

processor\t: 2
model name\t: Fast CPU 9000
physical id\t: 0
core id\t\t: 1
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, Path]:
    """A machine made of files."""
    proc, etc, root = tmp_path / "proc", tmp_path / "etc", tmp_path / "cgroup"
    for folder in (proc, etc, root, proc / "self"):
        folder.mkdir()
    (proc / "cpuinfo").write_text(CPUINFO)
    (proc / "meminfo").write_text("MemTotal:       16 kB\nMemFree: 1 kB\n")
    (proc / "self" / "cgroup").write_text("0::/\n")
    (etc / "os-release").write_text('NAME="Some Linux"\nPRETTY_NAME="Some Linux 12"\n')
    return {"proc": proc, "etc": etc, "root": root}


def make_checkout(folder: Path, head: str = "ref: refs/heads/main\n", commit: str | None = COMMIT) -> Path:
    """A `.git` as git writes it, as far as it is read."""
    git = folder / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text(head)
    (git / "config").write_text("[core]\n\tbare = false\n")
    if commit is not None:
        (git / "refs" / "heads" / "main").write_text(commit + "\n")
    return git


def head_of(folder: Path) -> tuple[str | None, str | None]:
    checkout = find_checkout(folder)
    assert checkout is not None
    return checkout.head()


def test_the_machine_is_read_from_its_files(machine: dict[str, Path], tmp_path: Path) -> None:
    found = read_environment(
        environ={"SLURM_JOB_ID": "7"}, argv=["train", "--token", "x"], cwd=tmp_path, path=[], **machine
    )
    assert found == Environment(
        command=["train", "--token", "[redacted]"],
        cwd=str(tmp_path),
        host=os.uname().nodename,
        python=platform.python_version(),
        git_commit=None,
        git_branch=None,
        platform="Some Linux 12",
        kernel=f"{os.uname().sysname} {os.uname().release}",
        machine=os.uname().machine,
        cpu_model="Fast CPU 9000",
        cpus_logical=3,
        cpus_physical=2,
        cpus_usable=len(os.sched_getaffinity(0)),
        memory_bytes=16 * 1024,
        cgroup_cpus=None,
        cgroup_memory_bytes=None,
        python_implementation=sys.implementation.name,
        executable=sys.executable,
        virtual_env=sys.prefix if sys.prefix != sys.base_prefix else None,
        packages={},
        git_dirty=None,
        git_remote=None,
        variables={"SLURM_JOB_ID": "7"},
        problems=[],
    )


def test_limits_of_the_cgroup_are_in_cores_and_bytes(machine: dict[str, Path], tmp_path: Path) -> None:
    (machine["proc"] / "self" / "cgroup").write_text("0::/job\n")
    (machine["root"] / "job").mkdir()
    (machine["root"] / "cgroup.controllers").write_text("cpu memory\n")
    (machine["root"] / "job" / "cpu.max").write_text("150000 100000\n")
    (machine["root"] / "job" / "memory.max").write_text("1048576\n")
    found = read_environment(environ={}, argv=[], cwd=tmp_path, path=[], **machine)
    assert (found.cgroup_cpus, found.cgroup_memory_bytes) == (1.5, 1048576)


def test_each_probe_that_fails_leaves_none_and_a_line(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    make_checkout(tmp_path, head="no such thing\n")
    found = read_environment(
        environ={},
        argv=[],
        cwd=tmp_path,
        proc=proc,
        root=tmp_path / "none",
        etc=tmp_path,
        path=["/none"],
        git="no-such-program-as-git",
    )
    assert (found.cpu_model, found.cpus_physical, found.memory_bytes) == (None, None, None)
    assert (found.git_commit, found.git_dirty) == (None, None)
    assert found.cpus_logical == os.cpu_count()
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "git commit",
        "cpuinfo",
        "memory",
        "git status",
    ]


def test_this_machine_can_be_read_and_written_as_json() -> None:
    found = read_environment()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Environment) == found
    assert found.packages is not None
    assert found.packages["msgspec"] == msgspec.__version__
    assert found.command


def test_the_identity_is_the_same_as_in_the_whole(tmp_path: Path) -> None:
    make_checkout(tmp_path)
    quick = read_identity(argv=["x"], cwd=tmp_path)
    whole = read_environment(environ={}, argv=["x"], cwd=tmp_path, path=[])
    assert [
        getattr(quick, name) for name in ("command", "cwd", "host", "python", "git_commit", "git_branch")
    ] == [getattr(whole, name) for name in ("command", "cwd", "host", "python", "git_commit", "git_branch")]
    assert (quick.git_commit, quick.git_branch, quick.problems) == (COMMIT, "main", [])


def test_a_working_directory_that_vanished_is_a_problem_and_no_more(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from flightlog.record.environment import read_identity\n"
        "os.rmdir(os.getcwd())\n"
        "found = read_identity(argv=['x'])\n"
        "print(found.cwd, found.command, len(found.problems))"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, capture_output=True, text=True, check=True)
    assert done.stdout == "None ['x'] 1\n"


def test_a_long_command_is_bounded(tmp_path: Path) -> None:
    found = read_identity(argv=["x", "y" * 10_000, *["z"] * 5000], cwd=tmp_path)
    assert found.command[1].endswith("… [+5904 characters]")
    assert len(found.command) == 1001
    assert found.command[-1] == "… [+4002 arguments]"


# --- variables -------------------------------------------------------------------------------------------


def test_only_variables_on_the_list_are_read_and_their_values_are_redacted(tmp_path: Path) -> None:
    environ = {
        "SLURM_JWT": "secret",
        "HOME": "/home/bob",
        "USER": "bob",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "OMP_NUM_THREADS": "",
        "XLA_FLAGS": "--token=abc --fast",
        "SLURM_JOB_NODELIST": "n" * 5000,
    }
    found = read_environment(environ=environ, argv=[], cwd=tmp_path, path=[]).variables
    assert found == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "XLA_FLAGS": "--token=[redacted] --fast",
        "SLURM_JOB_NODELIST": "n" * 1024 + "… [+3976 characters]",
    }


def test_the_list_names_each_variable_once_and_no_person_or_secret() -> None:
    assert len(set(VARIABLES)) == len(VARIABLES)
    assert not [name for name in VARIABLES if "USER" in name or "JWT" in name or "*" in name]


# --- packages --------------------------------------------------------------------------------------------


def test_packages_are_read_from_the_names_of_their_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for name in (
        "Zope.Interface-7.0.dist-info",
        "old_style-1.2-py3.11.egg-info",
        "torch-2.4.0+cu118.dist-info",
        "~orch-2.3.0.dist-info",
        "not-a-package",
    ):
        (first / name).mkdir(parents=True)
    (second / "torch-1.0.dist-info").mkdir(parents=True)
    assert read_packages([str(first), str(second), str(first), str(tmp_path / "missing")]) == {
        "old-style": "1.2",
        "torch": "2.4.0+cu118",
        "zope-interface": "7.0",
    }


def test_metadata_is_read_where_a_folders_name_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "plain.dist-info").mkdir()
    (tmp_path / "plain.dist-info" / "METADATA").write_text("Name: plain\nVersion: 3.1\n\nVersion: no\n")
    (tmp_path / "linked.egg-info").mkdir()
    (tmp_path / "linked.egg-info" / "PKG-INFO").write_text("Name: linked\nVersion: 0.9\n")
    (tmp_path / "bare.egg-info").write_text("Name: bare\nVersion: 0.1\n")
    (tmp_path / "silent.dist-info").mkdir()
    assert read_packages([str(tmp_path)]) == {"bare": "0.1", "linked": "0.9", "plain": "3.1", "silent": None}


# --- git -------------------------------------------------------------------------------------------------


def test_a_folder_outside_a_checkout_has_none(tmp_path: Path) -> None:
    assert find_checkout(tmp_path) is None


def test_the_commit_of_a_branch_is_found_from_a_folder_inside(tmp_path: Path) -> None:
    make_checkout(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert head_of(tmp_path / "a" / "b") == (COMMIT, "main")


def test_a_packed_branch_is_found(tmp_path: Path) -> None:
    git = make_checkout(tmp_path, commit=None)
    (git / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{OTHER} refs/heads/not/refs/heads/mainly\n"
        f"{COMMIT} refs/heads/main\n^{OTHER}\n"
    )
    assert head_of(tmp_path) == (COMMIT, "main")


def test_a_detached_head_has_a_commit_and_no_branch(tmp_path: Path) -> None:
    make_checkout(tmp_path, head=f"{OTHER}\n")
    assert head_of(tmp_path) == (OTHER, None)


def test_a_checkout_without_a_commit_has_a_branch_alone(tmp_path: Path) -> None:
    make_checkout(tmp_path, commit=None)
    assert head_of(tmp_path) == (None, "main")


def test_a_linked_working_tree_has_its_own_head_and_the_common_branches(tmp_path: Path) -> None:
    git = make_checkout(tmp_path / "main")
    (git / "refs" / "heads" / "topic").write_text(OTHER)
    linked = git / "worktrees" / "topic"
    linked.mkdir(parents=True)
    (linked / "HEAD").write_text("ref: refs/heads/topic\n")
    (linked / "commondir").write_text("../..\n")
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic" / ".git").write_text(f"gitdir: {linked}\n")
    assert head_of(tmp_path / "topic") == (OTHER, "topic")


def test_a_head_that_points_out_of_the_checkout_is_not_followed(tmp_path: Path) -> None:
    make_checkout(tmp_path, head="ref: refs/../../../etc/passwd\n")
    found = read_identity(argv=[], cwd=tmp_path)
    assert (found.git_commit, found.git_branch, len(found.problems)) == (None, None, 1)


def test_the_remote_is_redacted(tmp_path: Path) -> None:
    git = make_checkout(tmp_path)
    (git / "config").write_text(
        '[remote "fork"]\n\turl = https://example.org/fork.git\n'
        '[remote "origin"]\n\tfetch = x\n\turl = https://bob:hunter2@example.org/x.git\n'
        '[branch "main"]\n\tremote = origin\n'
    )
    checkout = find_checkout(tmp_path)
    assert checkout is not None
    assert checkout.remote() == "https://bob:[redacted]@example.org/x.git"


def test_a_git_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    make_checkout(tmp_path)
    slow = tmp_path / "slow-git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    found = read_environment(
        environ=os.environ, argv=[], cwd=tmp_path, path=[], git=str(slow), git_timeout_s=0.05
    )
    assert (found.git_commit, found.git_dirty) == (COMMIT, None)
    assert found.problems == ["git status: no answer within 0.05 s"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_checkout_is_dirty_when_a_tracked_file_differs_and_clean_with_untracked_ones(
    tmp_path: Path,
) -> None:
    # Inside a hook, variables of git's would point it at the checkout of the hook.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*arguments: str) -> str:
        names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *names, *arguments], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    (tmp_path / "model.py").write_text("x = 1\n")
    git("add", "model.py")
    git("commit", "-q", "-m", "first")
    (tmp_path / "output.csv").write_text("1\n")

    def read() -> tuple[str | None, bool | None]:
        found = read_environment(environ=environ, argv=[], cwd=tmp_path, path=[])
        return found.git_commit, found.git_dirty

    assert read() == (git("rev-parse", "HEAD"), False)
    (tmp_path / "model.py").write_text("x = 2\n")
    assert read() == (git("rev-parse", "HEAD"), True)
