"""A worker process, a rank or a whole node went away under its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from flightlog.analyze.diagnosis.base import CRASHES, Case, RunFacts, Sign, Source
from flightlog.analyze.diagnosis.matchers import Clues, job_state, named, raised, recorded, reports, says
from flightlog.analyze.diagnosis.text import exit_codes, signals

_SCHEDULERS_REASONS = frozenset({"TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED", "REQUEUED", "CANCELLED"})


def _facts(facts: RunFacts) -> Iterator[Sign]:
    reason = facts.worker_lost_reason
    if reason is not None:
        yield Sign(source=Source.scheduler, weight=3.5, text=f"the worker was lost: {reason}")
    if facts.lost_with:
        text = f"{facts.lost_with} other tasks ended with the same worker or host"
        yield Sign(source=Source.neighbours, weight=2, text=text)
    by_memory = facts.kernel_oom or "for memory" in (reason or "")
    if by_memory or facts.job_state in _SCHEDULERS_REASONS or facts.signal in CRASHES:
        yield Sign(source=Source.scheduler, weight=-6, text="what ended the worker is known")
    elif facts.hosts_workers_lost > 1:
        text = f"{facts.hosts_workers_lost} workers of host {facts.host} went away within seconds"
        yield Sign(source=Source.neighbours, weight=3, text=text)


_LAUNCHED = frozenset({"ChildFailedError", "ProcessExitedException", "SignalException"})
_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGHUP", "SIGTERM", "SIGBUS"})


_FIRST = "Root Cause (first observed failure)"
"""What torch's launcher writes above the rank that failed first; it ends the others itself, by SIGTERM."""


def _rank_killed(case: Case) -> Iterator[Sign]:
    """A launcher that reports a child killed from outside: the child is gone, and nobody says why."""
    root = case.reading.root
    if root is None or root.name not in _LAUNCHED:
        return
    first = case.reading.text.rpartition(_FIRST)[2]
    ends = [one for one in signals(first, exit_codes(first)) if one in _FROM_OUTSIDE]
    if ends:
        yield Sign(source=Source.exit, weight=4, text=f"a child process was ended by {ends[0]}")


_LAUNCHER = re.compile(r"BAD TERMINATION OF ONE OF YOUR|noticed that process rank \d")
_WHY = re.compile(
    r"\b(?:CUDA|HIP|ROCm) error\b|\bforrtl: severe|Fortran runtime error|terminate called after|FOAM FATAL",
    re.I,
)


def _said_why(case: Case) -> Iterator[Sign]:
    """A rank that says what went wrong and is then reported by its launcher was not lost."""
    text = case.reading.text
    report = _LAUNCHER.search(text)
    if report and (why := _WHY.search(text, 0, report.start())):
        yield Sign(source=Source.words, weight=-2.5, text=why[0])


rule = Clues(
    recorded(_facts),
    _rank_killed,
    job_state("NODE_FAIL", "BOOT_FAIL", "TERM_UNKNOWN"),
    raised(
        5,
        "KilledWorker WorkerLostError WorkerCrashedError ActorDiedError RayActorError",
        "ActorUnavailableError NodeDiedError ObjectLostError OwnerDiedError",
        "ObjectReconstructionFailedError TerminatedWorkerError BrokenProcessPool BrokenThreadPool",
        "BrokenExecutor LocalRayletDiedError ExecutorLostFailure WorkerDied WorkerDiedError",
        "NoValidWorkerError WorkerFailed DeadKernelError ObjectFetchTimedOutError ManagerLost",
        "WorkerLost ProcessExitedException WorkerLostFailure",
    ),
    raised(2.5, "CommClosedError"),
    reports(
        6,
        r"DUE TO NODE FAILURE|\bNODE_FAIL\b|\bBOOT_FAIL\b|Node failure on|NodeNotReady|NodeLost\b",
        r"\bNode \S+ is not (?:ready|responding)|launch failed requeued",
        r"DataLoader worker \(pid\(?s?\)?:? ?[\d, ]+\)? (?:is|are|exited|was)",
        "DataLoader worker .{0,60}(?:killed|exited unexpectedly)",
    ),
    reports(
        3.5,
        "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        r"(?:mpirun|mpiexec|prterun|PRTE|ORTE|mpiexec\.hydra|srun).{0,80}\b(?:noticed that process"
        "|has lost communication|lost connection|daemon)",
        unless="unable to reliably start",
    ),
    _said_why,
    reports(
        4.5,
        r"exited on signal \d+",
        r"(?:[Kk]illed|KILLED) (?:by|BY) (?:(?:signal|SIGNAL):? )?(?:\d+|SIG\w+|Killed|Bus error|Hangup)",
        r"task \d+(?:-\d+)?: (?:Killed|Bus error)",
        "EXIT STRING: (?:Killed|Bus error|Terminated|Hangup|Segmentation fault)",
        unless="compil|cc1plus|process group",
    ),
    reports(
        5.5,
        r"ExecutorLostFailure|Executor (?:heartbeat timed out|\S+ exited|lost)|Lost executor",
        r"Container .{0,60}on a \*lost\* node|Remote RPC client disassociated",
        "Lost task .{0,80}ExecutorLost",
    ),
    says(
        4,
        r"\b(?:workers?|nanny|actor|executor|node|raylet|rank|daemon|kernel|engine|child|agent"
        "|process in the process pool|loader process|slave|peer process|engine core"
        r"|enginecore)\b(?: process(?:es)?| proc)?.{0,60}\b(?:died|dies|was lost|has been lost"
        "|is lost|is dead|was killed|has been killed|crashed|disappeared|vanished"
        "|terminated abruptly|terminated unexpectedly|exited prematurely|exited unexpectedly"
        "|unexpectedly (?:exited|failed|died|terminated)|went away|became unreachable"
        "|failed unexpectedly|died unexpectedly|did not come back|exited before)",
        r"\b(?:lost|losing) (?:connection|contact|communication) (?:to|with) (?:the )?(?:worker"
        "|node|executor|scheduler|nanny|daemon|rank|remote daemon|agent|runner)",
        "missed .{0,20}heartbeats?|no heartbeats?",
        "heartbeat (?:was )?(?:lost|missed|timeout|timed out|failed)|lost worker",
        "no worker(?:s)? (?:left|alive)|without (?:any )?workers|all workers (?:died|lost)",
        r"worker\b.{0,30}\b(?:sent|got|received|exited with|was terminated|terminated).{0,30}(?:SIG|signal)",
        "prematurely exit|terminated abruptly while the future",
        r"failed to heartbeat|stream died|communicate with (?:the )?scheduler|zombie (?:job|task)",
        r"unserialize\(node\$con\)|did not deliver (?:a )?results?|process died unexpectedly",
        "job disconnected, attempting to reconnect|can not reconnect to",
        r"caused the cluster to lose|due to (?:the )?loss of|no longer alive|worker stopped while"
        r"|unexpected exit of|process \d+ .{0,40}was killed",
    ),
    says(
        3,
        "could not (?:find|schedule).{0,40}lost dependenc|lost dependencies",
        "node (?:failure|is down|went down|crashed|has failed|was terminated)",
    ),
    named(
        4,
        "(?:Worker|Actor|Node|Engine|Executor|Kernel|Process|Raylet)\\w*(?:Died|Dead|Lost|Crash"
        "|Kill|Terminated|Exited)|Dead(?:Kernel|Worker|Engine|Node)|KilledWorker|LostWorker"
        "|BrokenProcess",
    ),
    says(3.5, "processes terminated badly|terminated badly; aborting"),
    suggest=[
        "Find out what ended the worker: its own log, the kernel's (`dmesg -T`), or the batch system "
        "(`sacct -j JOB -o JobID,State,ExitCode,MaxRSS,NodeList`). Memory is the usual reason.",
        "If one node lost all of its tasks, leave it out (`--exclude=NODE`) and tell its operators.",
        "Let tasks be retried elsewhere, and keep their results small enough to be computed again.",
    ],
)
