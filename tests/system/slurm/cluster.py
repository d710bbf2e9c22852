"""Munge, MariaDB, slurmdbd, slurmctld and some slurmds: started in one folder, on loopback, and stopped by
their ids."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .packages import SBIN, NoSlurm, find, install
from .settings import ACCOUNT, NODES, slurm_conf, slurmdbd_conf, write_private

PIDS = "pids.json"
DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd")
"""In the order of their start."""
PATIENCE_S = 60.0


class Cluster:
    """A Slurm of a few nodes that all are this machine. As root, on Debian; a `NoSlurm` says what is in the
    way.

    `environ` holds the variables that make `sbatch`, `sacct` and all others use it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()  # one name, however it is written: processes are known by it
        self.environ = {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "PATH": os.environ.get("PATH", "") + ":" + SBIN,
        }
        self._pids: dict[str, int] = {}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self) -> Cluster:
        """Start everything, unless it runs already; ready for jobs when this returns."""
        install()
        if self._is_up():
            return self
        if os.geteuid() != 0:
            raise NoSlurm("slurmd starts jobs in their users' names: it wants to be root")
        if self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / "slurm.conf").exists():
            raise NoSlurm(
                f"{self.folder} holds something else than a Slurm: name a folder that is empty, or new"
            )
        self.stop()  # what is left of one that runs no more as a whole
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("state", "database", "logs"):
            (self.folder / name).mkdir(parents=True)
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> int:
        """End every job and every process of this Slurm, and say how many of its daemons ran; folder and logs
        stay.

        They are known by the `SLURM_CONF` in their environment, whatever has become of the folder.
        """
        found = self._daemons()
        if not (self.folder / "slurm.conf").exists():
            for pid in found:
                _signal(
                    pid, signal.SIGKILL
                )  # without their files they neither answer nor have anything to save
        elif _lives(self._noted().get("slurmctld", 0)):
            try:
                self._run(["scancel", "--full", "--user=root"], check=False)
                self._until(lambda: not self._run(["squeue", "-h"], check=False), "the jobs to end", 5.0, "")
            except subprocess.TimeoutExpired:
                pass  # it does not answer: what runs in its jobs is ended below
        for pid in found:
            if _program(pid) == "slurmd":
                _signal(pid, signal.SIGTERM)  # all at once: each takes its time where slurmctld is gone
        for pid in reversed(found):
            _end(pid)
        for process in self._started:
            process.wait()
        self._started = []
        for pid in self._left_behind():
            _signal(pid, signal.SIGKILL)
        (self.folder / PIDS).unlink(missing_ok=True)
        self._pids = {}
        return len(found)

    def run(self, *words: str, **more: str) -> str:
        """The output of one of Slurm's commands, `more` variables in its environment; fails with what it
        said."""
        return self._run(list(words), more=more)

    def submit(self, script: str, *options: str, **more: str) -> str:
        """`sbatch` of a shell script; gives the job's id. Its output goes to `logs/job-ID.out` or
        `-ARRAY_INDEX`."""
        file = self.folder / f"job-{time.monotonic_ns()}.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        out = self.folder / "logs" / ("job-%A_%a.out" if _is_array(options) else "job-%j.out")
        return self._run(
            ["sbatch", "--parsable", f"--account={ACCOUNT}", f"--output={out}", *options, str(file)],
            more=more,
        ).strip()

    def until_running(self, *jobs: str) -> None:
        """Until these jobs have been started."""
        which = ",".join(jobs)
        self._until(
            lambda: (
                self._run(["squeue", "-h", "-t", "R", "-o", "%T", "--jobs", which]).split()
                == ["RUNNING"] * len(jobs)
            ),
            f"the jobs {which} to run",
            PATIENCE_S,
            "slurmctld",
        )

    def wait(self, *jobs: str, patience_s: float = PATIENCE_S) -> None:
        """Until these jobs have ended, and accounting knows all of them: their requests may come after their
        ends."""

        def ended() -> bool:
            if self._run(["squeue", "-h", "--jobs", ",".join(jobs)], check=False).strip():
                return False
            known = self._run(["sacct", "-nXPo", "JobID,End,Partition", "--jobs", ",".join(jobs)]).split()
            told = [line.split("|") for line in known]
            return {job.partition("_")[0] for job, _, _ in told} >= set(jobs) and all(
                end != "Unknown" and partition for _, end, partition in told
            )

        self._until(ended, f"the jobs {', '.join(jobs)} to end", patience_s, "slurmctld")

    def _start_all(self) -> None:
        folder = self.folder
        *ports, database_port = _free_ports(NODES + 3)
        password = os.urandom(12).hex()
        write_private(folder / "munge.key", os.urandom(128))
        write_private(folder / "slurm.conf", slurm_conf(folder, ports, _short_host()))
        write_private(folder / "slurmdbd.conf", slurmdbd_conf(folder, ports[1], database_port, password))
        self._daemon(
            "munged",
            "--foreground",
            "--force",
            "--num-threads=2",
            f"--key-file={folder}/munge.key",
            f"--socket={folder}/munge.socket",
            f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/logs/munged.own",
            f"--seed-file={folder}/munge.seed",
        )
        self._until((folder / "munge.socket").exists, "munge's socket", 20.0, "munged")
        self._start_database(database_port, password)
        self._daemon("slurmdbd", "-D")
        self._until(lambda: _answers(ports[1]), "slurmdbd", PATIENCE_S, "slurmdbd")
        self._run(["sacctmgr", "-i", "add", "cluster", "flight"])
        self._run(["sacctmgr", "-i", "add", "account", ACCOUNT, "cluster=flight"])
        self._run(["sacctmgr", "-i", "add", "user", "root", f"account={ACCOUNT}"], check=False)
        self._daemon("slurmctld", "-D", "-c")
        for i in range(1, NODES + 1):
            (folder / f"spool-n{i}").mkdir()
            self._daemon("slurmd", "-D", "-N", f"n{i}", name=f"slurmd-n{i}")
        idle = f"{NODES}"
        self._until(
            lambda: (
                self._run(["sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D"], check=False).strip()
                == idle
            ),
            "the nodes to be idle",
            PATIENCE_S,
            "slurmctld",
        )

    def _start_database(self, port: int, password: str) -> None:
        folder = self.folder
        users = [] if os.geteuid() else ["--user=root"]
        made = subprocess.run(
            [
                find("mariadb-install-db") or "mariadb-install-db",
                "--no-defaults",
                *users,
                f"--datadir={folder}/database",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise NoSlurm(f"mariadb-install-db failed:\n{(made.stdout + made.stderr)[-2000:]}")
        (folder / "first.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS slurm_acct;"
            f"CREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY '{password}';"
            "GRANT ALL ON slurm_acct.* TO 'slurm'@'%';\n".replace(";", ";\n")
        )
        self._daemon(
            "mariadbd",
            "--no-defaults",
            *users,
            f"--datadir={folder}/database",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={folder}/database.socket",
            f"--pid-file={folder}/mariadbd.pid",
            f"--init-file={folder}/first.sql",
            "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-lock-wait-timeout=900",
        )
        self._until(lambda: _answers(port), "MariaDB", PATIENCE_S, "mariadbd")

    def _daemon(self, program: str, *words: str, name: str = "") -> None:
        """Start a program that stays in the foreground of nobody; its output is its log."""
        name = name or program
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [find(program) or program, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**_plain_environ(), **self.environ},
                cwd=self.folder,
                start_new_session=True,
            )
        self._pids[name] = process.pid
        self._started.append(process)
        write_private(self.folder / PIDS, json.dumps(self._pids))

    def _run(self, words: Sequence[str], *, check: bool = True, more: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            words,
            env={**_plain_environ(), **self.environ, **(more or {})},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )
        if check and done.returncode:
            raise NoSlurm(f"{' '.join(words)} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _until(self, there: Callable[[], bool], what: str, patience_s: float, log: str) -> None:
        """Wait; where it takes too long, or the program has ended, say so with the end of its log (none: no
        matter)."""
        deadline = time.monotonic() + patience_s
        while not there():
            ended = log in self._pids and not _lives(self._pids[log])
            if ended or time.monotonic() > deadline:
                if not log:
                    return
                why = "it has ended" if ended else f"not within {patience_s:g} s"
                raise NoSlurm(f"waited for {what}: {why}. The end of {log}'s log:\n{self.log_tail(log)}")
            time.sleep(0.1)

    def log_tail(self, name: str) -> str:
        """The last lines of a program's log."""
        file = self.folder / "logs" / f"{name}.log"
        return "\n".join(file.read_text("utf-8", "replace").splitlines()[-25:]) if file.exists() else ""

    def _is_up(self) -> bool:
        self._pids = self._noted()
        return (
            len(self._pids) == NODES + 4
            and all(map(_lives, self._pids.values()))
            and bool(self._run(["sinfo", "-h"], check=False).strip())
        )

    def _noted(self) -> dict[str, int]:
        try:
            noted: dict[str, int] = json.loads((self.folder / PIDS).read_text())
        except (OSError, ValueError):
            return {}
        ours = self._ours()
        return {name: pid for name, pid in noted.items() if pid in ours}

    def _ours(self) -> dict[int, list[bytes]]:
        """The environment of every process that lives with this Slurm's configuration, but for this one."""
        ours = b"SLURM_CONF=" + self.environ["SLURM_CONF"].encode()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        found = {pid: _environ_of(pid) for pid in pids if pid != os.getpid()}
        return {pid: variables for pid, variables in found.items() if ours in variables}

    def _daemons(self) -> list[int]:
        """The daemons of this Slurm in the order of their start, without what they have started and end
        themselves."""
        names = {pid: name for pid in self._ours() if (name := _program(pid)) in DAEMONS}
        return sorted(
            (pid for pid in names if _parent(pid) not in names), key=lambda pid: DAEMONS.index(names[pid])
        )

    def _left_behind(self) -> list[int]:
        """Step daemons of this Slurm, and what runs in its jobs."""
        return [
            pid
            for pid, found in self._ours().items()
            if _program(pid) == "slurmstepd" or any(v.startswith(b"SLURM_JOB_ID=") for v in found)
        ]


def _is_array(options: Sequence[str]) -> bool:
    return any(option.startswith(("--array", "-a")) for option in options)


def _plain_environ() -> dict[str, str]:
    """This process's variables, but for those of a Slurm job it may itself run in, and of a run."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "SBATCH_", "FLIGHTLOG_")) and name != "TRACEPARENT"
    }


def _short_host() -> str:
    return os.uname().nodename.partition(".")[0]


def _free_ports(number: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _environ_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _program(pid: int) -> str:
    """The name of the program a process executes; Debian has `slurmd-wlm` behind `slurmd`."""
    try:
        return Path(os.readlink(f"/proc/{pid}/exe")).name.removesuffix("-wlm")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _lives(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _end(pid: int) -> None:
    """SIGTERM, and SIGKILL ten seconds later; a child of ours is waited for."""
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + 10.0
    while _lives(pid):
        if time.monotonic() > deadline:
            _signal(pid, signal.SIGKILL)
            deadline += 10.0
        time.sleep(0.05)
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
