"""Where a run happened: command, host, CPUs, memory, Python, packages, git, batch system, and the Slurm job
by its variables (no command of Slurm's is run).

Each probe stands alone: one that fails leaves None (or nothing) and a line in `problems`. Nothing raises.
Names of users, and variables that are not on the list below, are not read.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from flightlog.core.descriptors import folder_names, read_bytes
from flightlog.core.redaction import redact_command, redact_mapping
from flightlog.core.text import first_line
from flightlog.core.threads import hears_of_children, original, run_command
from flightlog.events import JobStarted
from flightlog.record.background_imports import loading
from flightlog.record.limits import RecordLimits
from flightlog.record.values import bounded

T = TypeVar("T")

_NAMES = """
    SLURM_JOB_ID SLURM_JOB_NAME SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_COUNT
    SLURM_CLUSTER_NAME SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_ACCOUNT SLURM_JOB_NUM_NODES
    SLURM_JOB_NODELIST SLURM_NODEID SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_PROCID SLURM_LOCALID
    SLURM_STEP_ID SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_MEM_PER_NODE SLURM_MEM_PER_CPU SLURM_GPUS
    SLURM_GPUS_ON_NODE SLURM_JOB_GPUS SLURM_JOB_START_TIME SLURM_JOB_END_TIME SLURM_RESTART_COUNT
    SLURMD_NODENAME
    PBS_JOBID PBS_JOBNAME PBS_QUEUE PBS_ARRAY_INDEX PBS_ARRAYID PBS_NODENUM PBS_NUM_NODES PBS_NUM_PPN PBS_NP
    PBS_WALLTIME NCPUS
    LSB_JOBID LSB_JOBINDEX LSB_JOBNAME LSB_QUEUE LSB_DJOB_NUMPROC LSB_MAX_NUM_PROCESSORS LSB_HOSTS
    SGE_TASK_ID NSLOTS
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ZE_AFFINITY_MASK PYTORCH_CUDA_ALLOC_CONF
    XLA_FLAGS XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_MEM_FRACTION TF_FORCE_GPU_ALLOW_GROWTH
    OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_SCHEDULE MKL_NUM_THREADS OPENBLAS_NUM_THREADS
    BLIS_NUM_THREADS VECLIB_MAXIMUM_THREADS NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS NUMBA_NUM_THREADS
    POLARS_MAX_THREADS RAYON_NUM_THREADS MALLOC_ARENA_MAX PYTHONHASHSEED PYTHONOPTIMIZE PYTHONMALLOC
    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE
    MV2_COMM_WORLD_RANK MV2_COMM_WORLD_SIZE MV2_COMM_WORLD_LOCAL_RANK PMI_RANK PMI_SIZE PMIX_RANK
    MPI_LOCALRANKID RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK MASTER_ADDR MASTER_PORT
    CONDA_DEFAULT_ENV APPTAINER_NAME SINGULARITY_NAME
"""
VARIABLES = tuple(_NAMES.split())
"""Every variable that is read, by its full name: a pattern such as `SLURM_*` would take `SLURM_JWT` with
it."""

_COMMIT = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_STEM = r"(.+?)(?:-(v?\d[^-]*))?(?:-py\d[\d.]*)?"
_SEPARATORS = r"[-_.]+"

_GROUP = re.compile(r"([0-9]{1,9})(?:\(x([0-9]{1,9})\))?")
MB = 1 << 20


class Identity(Struct, frozen=True, kw_only=True):
    """What `run.json` wants to know at once; read in well under a millisecond, without another process."""

    command: list[str]
    """How the process was started, redacted; at most 1,000 arguments."""
    cwd: str | None
    host: str | None
    python: str
    git_commit: str | None
    git_branch: str | None
    """None outside a checkout, and on a detached HEAD."""
    problems: list[str]


class Environment(Identity, frozen=True, kw_only=True):
    """All of it, for `environment.json`."""

    platform: str | None
    """The distribution, or the system where it does not say."""
    kernel: str | None
    machine: str | None
    cpu_model: str | None
    cpus_logical: int | None
    cpus_physical: int | None
    cpus_usable: int | None
    """Those the scheduler may use for this process; quotas are `cgroup_cpus`."""
    memory_bytes: int | None
    cgroup_cpus: float | None
    """The CPU quota in cores; None where there is none."""
    cgroup_memory_bytes: int | None
    python_implementation: str
    executable: str | None
    virtual_env: str | None
    packages: dict[str, str | None] | None
    """Installed distributions and their versions, None where one does not say; the first on the path where
    there are several."""
    git_dirty: bool | None
    """Whether tracked files differ from the commit; None where git is missing or took too long."""
    git_remote: str | None
    variables: dict[str, str]
    """Those of `VARIABLES` that are set, redacted."""


def read_identity(*, argv: Sequence[str] | None = None, cwd: Path | None = None) -> Identity:
    """Command, host, Python and git commit of this process. Never raises."""
    return _identity(_Probe(), argv, cwd)[0]


def read_environment(
    *,
    environ: Mapping[str, str] | None = None,
    argv: Sequence[str] | None = None,
    cwd: Path | None = None,
    proc: Path = Path("/proc"),
    root: Path = Path("/sys/fs/cgroup"),
    etc: Path = Path("/etc"),
    path: Iterable[str] | None = None,
    git: str = "git",
    git_timeout_s: float = 2.0,
) -> Environment:
    """Everything, for a background thread: it reads a few hundred folder names and asks git. Never raises."""
    environ = os.environ if environ is None else environ
    probe = _Probe()
    identity, checkout = _identity(probe, argv, cwd)
    uname, has_affinity = probe("system", os.uname), hasattr(os, "sched_getaffinity")
    cpuinfo = probe("cpuinfo", lambda: _cpuinfo(proc)) or []
    with loading():
        from flightlog.samplers.cgroup import cgroup_limits
    limits = cgroup_limits(root, proc)
    return Environment(
        **asdict(identity),
        platform=_distribution(etc) or (uname.sysname if uname else None),
        kernel=f"{uname.sysname} {uname.release}" if uname else None,
        machine=uname.machine if uname else None,
        cpu_model=next((cpu["model name"] for cpu in cpuinfo if cpu.get("model name")), None),
        cpus_logical=len(cpuinfo) or os.cpu_count(),
        cpus_physical=_physical(cpuinfo),
        cpus_usable=probe("affinity", lambda: len(os.sched_getaffinity(0))) if has_affinity else None,
        memory_bytes=probe("memory", lambda: _memory(proc)),
        cgroup_cpus=limits.cpus,
        cgroup_memory_bytes=limits.memory_bytes,
        python_implementation=sys.implementation.name,
        executable=bounded(sys.executable) if sys.executable else None,
        virtual_env=_virtual_env(environ),
        packages=probe("packages", lambda: read_packages(sys.path if path is None else path)),
        git_dirty=probe("git status", lambda: _dirty(checkout, git, git_timeout_s, environ)),
        git_remote=probe("git remote", lambda: checkout.remote() if checkout else None),
        variables=probe("variables", lambda: _variables(environ)) or {},
    )


class _Probe:
    """Calls a function; if it fails, notes why and gives None."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def __call__(self, what: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - no probe may hurt the run, whatever machine this is
            self.problems.append(bounded(f"{what}: {error or type(error).__name__}", 300))
            return None


def _identity(
    probe: _Probe, argv: Sequence[str] | None, cwd: Path | None
) -> tuple[Identity, Checkout | None]:
    folder = cwd or probe("working directory", Path.cwd)
    checkout = probe("git", lambda: find_checkout(folder)) if folder else None
    commit, branch = (probe("git commit", checkout.head) if checkout else None) or (None, None)
    found = Identity(
        command=probe("command", lambda: _command(argv)) or [],
        cwd=bounded(str(folder)) if folder else None,
        host=probe("host", lambda: os.uname().nodename),
        python=sys.version.split()[0],
        git_commit=commit,
        git_branch=bounded(branch, 256) if branch else None,
        problems=probe.problems,
    )
    return found, checkout


def _command(argv: Sequence[str] | None) -> list[str]:
    given = argv if argv is not None else (sys.orig_argv or sys.argv)
    shown = [bounded(argument) for argument in redact_command(given[: RecordLimits.max_arguments])]
    more = len(given) - len(shown)
    return [*shown, f"… [+{more} arguments]"] if more else shown


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ[name] for name in VARIABLES if environ.get(name)}
    return {name: bounded(value, 1024) for name, value in redact_mapping(found).items()}


def _virtual_env(environ: Mapping[str, str]) -> str | None:
    found = sys.prefix if sys.prefix != sys.base_prefix else environ.get("CONDA_PREFIX")
    return bounded(found) if found else None


def _distribution(etc: Path) -> str | None:
    try:
        lines = _lines(etc / "os-release")
    except OSError:
        return None  # not every system has one
    names = [line.partition("=")[2].strip("\"' ") for line in lines if line.startswith("PRETTY_NAME=")]
    return bounded(names[0], 256) if names and names[0] else None


def _cpuinfo(proc: Path) -> list[dict[str, str]]:
    """One mapping for each CPU that is online."""
    cpus: list[dict[str, str]] = []
    for line in _lines(proc / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "processor":
            cpus.append({})
        if cpus:
            cpus[-1][key.strip()] = value.strip()
    return cpus


def _physical(cpuinfo: list[dict[str, str]]) -> int | None:
    """Cores, with the threads of one core counted once; None where the kernel does not say which those
    are.
    """
    cores = {(cpu.get("physical id"), cpu.get("core id")) for cpu in cpuinfo}
    return len(cores) if cores and all(None not in core for core in cores) else None


def _memory(proc: Path) -> int:
    if proc.is_dir():
        for line in _lines(proc / "meminfo"):
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
        raise ValueError(f"{proc / 'meminfo'} holds no MemTotal")
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


# --- installed packages ----------------------------------------------------------------------------------


def read_packages(path: Iterable[str]) -> dict[str, str | None]:
    """Names, normalized, and versions of the distributions on this import path, sorted by name.

    Read from the names of their folders, which takes milliseconds; metadata is opened only where a folder's
    name has no version. Raises nothing for folders that are missing or cannot be read: imports skip them too.
    """
    found: dict[str, str | None] = {}
    for folder in dict.fromkeys(path):
        try:
            names = [
                name for name in folder_names(folder or ".") if name.endswith((".dist-info", ".egg-info"))
            ]
        except OSError:
            continue
        for entry in sorted(names):
            stem = re.fullmatch(_STEM, entry.rpartition(".")[0])
            if stem is None or entry.startswith("~"):  # what an interrupted installation leaves behind
                continue
            key = re.sub(_SEPARATORS, "-", stem.group(1)).lower()
            if key not in found:
                version = stem.group(2) or _metadata_version(Path(folder or ".", entry))
                found[key] = bounded(version, 128) if version else None
    return dict(sorted(found.items()))


def _metadata_version(info: Path) -> str | None:
    for file in (info / "METADATA", info / "PKG-INFO", info):
        with suppress(OSError):
            for line in _lines(file):
                if line.startswith("Version:"):
                    return line.partition(":")[2].strip()
                if not line.strip():
                    break
    return None


# --- git -------------------------------------------------------------------------------------------------


class Checkout(Struct, frozen=True):
    """A git checkout, read from its files."""

    top: Path
    """The folder that holds `.git`."""
    git_dir: Path
    """Where this working tree's HEAD is."""
    common_dir: Path
    """Where branches and settings are: another folder for a linked working tree."""

    def head(self) -> tuple[str | None, str | None]:
        """Commit and branch: no commit before the first one, no branch on a detached HEAD."""
        text = _first_line(self.git_dir / "HEAD")
        if not text.startswith("ref:"):
            return _commit(text, self.git_dir / "HEAD"), None
        ref = text[4:].strip()
        branch = ref.removeprefix("refs/heads/")
        if not ref.startswith("refs/") or ".." in ref.split("/"):
            raise ValueError(f"{self.git_dir / 'HEAD'} names no branch: {ref!r}")
        for folder in (self.git_dir, self.common_dir):
            if (folder / ref).is_file():
                return _commit(_first_line(folder / ref), folder / ref), branch
        packed = self.common_dir / "packed-refs"
        if packed.is_file():
            before, found, _ = (read_bytes(packed) + b"\n").partition(b" %s\n" % os.fsencode(ref))
            if found:  # after its commit
                return _commit(before.rpartition(b"\n")[2].decode("ascii", "replace"), packed), branch
        if (self.common_dir / "reftable").is_dir():
            raise ValueError(f"{self.common_dir / 'reftable'} holds the branches in a form that is not read")
        return None, branch

    def remote(self) -> str | None:
        """The address of `origin`, else of the first remote, redacted."""
        config = self.common_dir / "config"
        found: dict[str, str] = {}
        section = ""
        for line in _lines(config):
            key, equals, value = line.strip().partition("=")
            if line.strip().startswith("["):
                section = line.strip()
            elif equals and key.strip() == "url" and section.startswith('[remote "'):
                found.setdefault(section, value.strip())
        url = found.get('[remote "origin"]') or next(iter(found.values()), None)
        return bounded(url, 1024) if url else None


def find_checkout(folder: Path) -> Checkout | None:
    """The checkout that the folder lies in, linked working trees and submodules included; None outside
    one.
    """
    for top in (folder, *folder.parents):
        dot_git = top / ".git"
        if dot_git.is_file():
            git_dir = top / _first_line(dot_git).removeprefix("gitdir:").strip()
        elif (dot_git / "HEAD").is_file():
            git_dir = dot_git
        else:
            continue
        common = git_dir / "commondir"
        return Checkout(top, git_dir, git_dir / _first_line(common) if common.is_file() else git_dir)
    return None


def _first_line(file: Path) -> str:
    return next(iter(_lines(file)), "")[:4096].strip()


def _lines(file: Path) -> list[str]:
    return read_bytes(file).decode("utf-8", "replace").splitlines()


def _commit(text: str, source: Path) -> str:
    if re.fullmatch(_COMMIT, text) is None:
        raise ValueError(f"{source} holds no commit: {text[:80]!r}")
    return text


def _dirty(checkout: Checkout | None, git: str, timeout_s: float, environ: Mapping[str, str]) -> bool | None:
    """Ask git, without taking its locks and without running programs that the checkout's settings name."""
    if checkout is None or hears_of_children():
        return None
    import signal

    # Keys pressed are the program's. A Ctrl-Z that stopped the child before git runs would hold up the
    # program's stop.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
    # Variables such as GIT_DIR, set inside a hook, would point git at another checkout.
    variables = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    with loading():
        original("select")  # which `run_command` waits by
    arguments = ["-C", str(checkout.top), "-c", "core.fsmonitor=false", "status"]
    try:
        code, output, errors = run_command(
            [git, *arguments, "--porcelain", "--untracked-files=no"],
            {**variables, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            timeout_s,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if code:
        said = errors.decode("utf-8", "replace").strip() or f"exit code {code}"
        raise OSError(first_line(said))
    return bool(output.strip())


def job_here(
    environ: Mapping[str, str] | None = None,
    *,
    worker: str | None = None,
    task_id: str | None = None,
    host: str | None = None,
) -> JobStarted | None:
    """The job this process runs in, bound to a worker or a task where one is named; None outside a job.

    What the variables do not say, or say in a way that cannot be read, is None. Never raises.
    """
    environ = os.environ if environ is None else environ
    raw = _text(environ, "SLURM_JOB_ID") or _text(environ, "SLURM_JOBID")
    if raw is None:
        return None
    array, index = _text(environ, "SLURM_ARRAY_JOB_ID"), _number(environ, "SLURM_ARRAY_TASK_ID")
    in_array = array is not None and index is not None
    cpus = _added_up(environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    nodes = _number(environ, "SLURM_JOB_NUM_NODES") or _number(environ, "SLURM_NNODES")
    return JobStarted(
        job_id=f"{array}_{index}" if in_array else raw,
        cluster=_text(environ, "SLURM_CLUSTER_NAME"),
        raw_job_id=raw,
        array_job_id=array if in_array else None,
        array_index=index if in_array else None,
        array_size=_number(environ, "SLURM_ARRAY_TASK_COUNT") if in_array else None,
        name=_text(environ, "SLURM_JOB_NAME"),
        user=_text(environ, "SLURM_JOB_USER"),
        partition=_text(environ, "SLURM_JOB_PARTITION"),
        account=_text(environ, "SLURM_JOB_ACCOUNT"),
        qos=_text(environ, "SLURM_JOB_QOS"),
        nodes=_text(environ, "SLURM_JOB_NODELIST"),
        cpus=cpus,
        memory_bytes=_job_memory(environ, nodes, cpus),
        gpus=_gpus(environ, nodes),
        walltime_s=_walltime(environ),
        worker=worker,
        task_id=task_id,
        host=host,
        restarts=_number(environ, "SLURM_RESTART_COUNT"),
        submit_host=_text(environ, "SLURM_SUBMIT_HOST"),
        submit_dir=_text(environ, "SLURM_SUBMIT_DIR"),
    )


def _text(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name, "").strip()
    return value.encode("utf-8", "backslashreplace").decode()[: RecordLimits.max_variable_characters] or None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "").strip()
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None


def _added_up(text: str) -> int | None:
    """All of `8(x2),4`; None for anything else."""
    groups = [_GROUP.fullmatch(group) for group in text.split(",")]
    if not all(groups):
        return None
    return sum(int(group[1]) * int(group[2] or 1) for group in groups if group is not None)


def _job_memory(environ: Mapping[str, str], nodes: int | None, cpus: int | None) -> int | None:
    """On all nodes; Slurm writes 0 for all that a node has, which is not known here."""
    on_node, by_cpu = _number(environ, "SLURM_MEM_PER_NODE"), _number(environ, "SLURM_MEM_PER_CPU")
    if on_node and nodes:
        return on_node * nodes * MB
    return by_cpu * cpus * MB if by_cpu and cpus else None


def _gpus(environ: Mapping[str, str], nodes: int | None) -> int | None:
    whole = _number(environ, "SLURM_GPUS")
    if whole is not None:
        return whole
    here = _number(environ, "SLURM_GPUS_ON_NODE")
    return here * nodes if here is not None and nodes else None


def _walltime(environ: Mapping[str, str]) -> float | None:
    """As newer versions tell it, by start and end."""
    start, end = _number(environ, "SLURM_JOB_START_TIME"), _number(environ, "SLURM_JOB_END_TIME")
    return float(end - start) if start and end and end > start else None
