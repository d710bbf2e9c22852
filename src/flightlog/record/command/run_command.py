"""`flightlog run`: any command, in any language, recorded as a run of one task; a Slurm array as one run.

`run_command` starts the command and waits for it; `CommandRecord` writes its start, process tree, output and
end into the run.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from flightlog.core import threads
from flightlog.core.redaction import redact_command
from flightlog.core.settings import read_settings
from flightlog.events import (
    CostRates,
    Failure,
    ResourceRequest,
    ResourceSample,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskStarted,
    TaskSubmitted,
    Usage,
    UserEvent,
    WorkerLaunched,
    WorkerRemoved,
    usage_of,
)
from flightlog.record.clock import monotonic_ns
from flightlog.record.command.child import (
    NOT_FOUND,
    Child,
    Ended,
    Inbox,
    NotStarted,
    OutputTail,
    become,
    hold_streams,
)
from flightlog.record.context import ENVIRONMENT, RUN, TRACEPARENT, format_traceparent
from flightlog.record.environment import job_here
from flightlog.record.joining import COMMAND
from flightlog.record.recording import NoopRun, Recording, record
from flightlog.record.run import LiveRun
from flightlog.record.task import lane_name
from flightlog.record.values import clean
from flightlog.record.worker_costs import WorkerCosts
from flightlog.samplers import Sampler
from flightlog.samplers.cgroup import CgroupSampler, OomKills
from flightlog.samplers.gpu import GpuSampler
from flightlog.samplers.gpu.task import TaskWatch, begin
from flightlog.samplers.host import HostSampler
from flightlog.samplers.process import ProcessSampler
from flightlog.samplers.usage import max_rss_bytes, own_peak_rss_bytes

if TYPE_CHECKING:
    from flightlog.record.array_run import ArrayElement

log = logging.getLogger("flightlog")


class CommandResult(Struct, frozen=True):
    """What became of a command."""

    code: int
    """Its exit code; 128 and the signal's number if one ended it; 126 or 127 if it could not be started."""
    run_id: str | None
    """The run it was recorded in, if it was."""
    message: str | None = None
    """Why it could not be started."""


def run_command(
    argv: Sequence[str],
    *,
    project: str | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    tags: Mapping[str, Any] | None = None,
    sample_interval_s: float | None = 1.0,
    rates: CostRates | None = None,
) -> CommandResult:
    """Run a command and record it. Its output, its input, its signals and its exit code are as without
    recording.

    `rates` are what its time costs.

    For the main thread of a process that does nothing else. Where recording is switched off, this process
    becomes the command, and comes back only if that is impossible. Whatever is wrong with recording, the
    command runs.
    """
    closed = hold_streams()
    if not read_settings().enabled:
        problem = become(argv)
        return CommandResult(problem.code, None, str(problem))
    # A word of the command line, not a path of ours.
    name = os.path.basename(argv[0]) or argv[0]  # noqa: PTH119
    tree = TreeSampler()
    with Inbox() as inbox:
        recording = _recording(argv, project or name, runs_dir, tags or {}, sample_interval_s, tree)
        with recording as run:
            told = CommandRecord(run, name, argv, tree, WorkerCosts(rates))
            told.submitted()
            try:
                child = Child(argv, {**os.environ, **told.place()}, closed)
            except NotStarted as problem:
                told.not_started(problem)
                recording.conclude("failed", str(problem))
                return CommandResult(problem.code, run.run_id or None, str(problem))
            told.started(child)
            ended = child.wait(inbox, told.look)
            tails = {stream: passage.tail for stream, passage in child.passages.items()}
            told.ended(ended, tails, child.unseen)
            recording.conclude(*_verdict(ended))
            return CommandResult(ended.code, run.run_id or None)


def _recording(
    argv: Sequence[str],
    project: str,
    runs_dir: str | os.PathLike[str] | None,
    tags: Mapping[str, Any],
    interval_s: float | None,
    tree: TreeSampler,
) -> Recording | ArrayElement:
    """A run of the command's own; in an element of a Slurm array, the run of the whole array."""
    samplers: list[Sampler] = [CgroupSampler(), GpuSampler(), HostSampler(), tree]
    settings, job = read_settings(), job_here()
    if job is not None and job.array_job_id is not None and settings.run is None:
        from flightlog.record.array_run import begin_element

        folder = Path(runs_dir) if runs_dir is not None else settings.runs_dir
        try:
            return begin_element(job, settings, folder, project, argv, tags, interval_s, samplers)
        # The command runs, whatever is wrong with the run of its array.
        except Exception as error:  # noqa: BLE001
            why = f"the run of array {job.array_job_id} cannot be had ({error})"
            log.warning("%s: this element is recorded as a run of its own", why)
    return record(
        project,
        runs_dir=runs_dir,
        tags=tags,
        sample_interval_s=interval_s,
        samplers=samplers,
        provider=COMMAND,
        target="local",
    )


def _verdict(ended: Ended) -> tuple[str, str | None]:
    """The run's status, and its error in a line."""
    if ended.interrupted_by is not None:
        return "interrupted", ended.interrupted_by
    if ended.status == 0:
        return "completed", None
    return "failed", ended.signal or f"exit code {ended.status}"


OUTPUT = "command_output"
"""Name of the event that holds the end of a command's output: of each stream (`stdout` and `stderr`, or
`output` where both are one file) its last lines and its bytes, null where nobody but the command saw it, and
a `note` that says why.
"""


class TreeSampler:
    """Samples a command's process tree once it runs; from any thread. Remembers what it has seen at most and
    last.
    """

    def __init__(self) -> None:
        self.peak_rss_bytes: int | None = None
        self.most_processes = 0
        self.last: ResourceSample | None = None
        self._sampler: ProcessSampler | None = None
        self._lock = threads.Lock()

    def follow(self, sampler: ProcessSampler) -> None:
        """Sample this tree from now on."""
        self._sampler = sampler

    def sample(self) -> Sequence[ResourceSample]:
        """The tree now; nothing before there is one, and after it has ended."""
        with self._lock:
            return self._look()

    def finish(self, peak_rss_bytes: int | None) -> Sequence[ResourceSample]:
        """The final sample of a tree that has ended, with its peak as it is known in the end."""
        with self._lock:
            samples = self._look()
            self.close()
            self._sampler = None
        for sample in samples:
            sample.final = True
            sample.peak_rss_bytes = peak_rss_bytes
        return samples

    def close(self) -> None:
        """Let descriptors go."""
        if self._sampler is not None:
            self._sampler.close()

    def _look(self) -> Sequence[ResourceSample]:
        samples = self._sampler.sample() if self._sampler else ()
        for sample in samples:
            self.last = sample
            self.most_processes = max(self.most_processes, sample.processes or 0)
            if sample.rss_bytes or self.peak_rss_bytes:
                self.peak_rss_bytes = max(self.peak_rss_bytes or 0, sample.peak_rss_bytes or 0) or None
        return samples


def _never_hurting(method: Callable[..., None]) -> Callable[..., None]:
    """The method, doing nothing where nothing is recorded, and its own mistakes noted in the run."""

    def guarded(self: CommandRecord, *args: Any) -> None:
        if not self.recorded:
            return
        try:
            method(self, *args)
        except Exception as error:  # noqa: BLE001 - the command goes on, whatever recording it meets
            self.run.recorder.trouble("command", f"the command could not be recorded in full: {error!r}")

    return guarded


class CommandRecord:
    """What a run is told of its command, step by step; none of it raises."""

    def __init__(
        self,
        run: LiveRun,
        name: str,
        argv: Sequence[str],
        tree: TreeSampler,
        costs: WorkerCosts | None = None,
    ) -> None:
        self.run, self.recorded = run, not isinstance(run, NoopRun)
        self._costs = costs or WorkerCosts()
        self._name, self._argv, self._tree = name, argv, tree
        self._ids: dict[str, Any] = {}
        self._args: dict[str, Any] = {}
        self._submitted_ns = self._started_ns = monotonic_ns()
        self._ended_ns = 0
        self._worker: dict[str, Any] = {}
        self._floor_bytes = 0
        self._gpu: TaskWatch | None = None
        self._oom: OomKills | None = None

    def place(self) -> dict[str, str]:
        """The variables that let Python code inside the command record into the run, as part of the task."""
        if not self._ids:
            return {}
        here = format_traceparent(self._ids["trace_id"], self._ids["span_id"])
        return {ENVIRONMENT[RUN]: str(self.run.path), ENVIRONMENT[TRACEPARENT]: here}

    @_never_hurting
    def submitted(self) -> None:
        """The command is about to be started."""
        run, task_id = self.run, self.run.recorder.next_id()
        command = redact_command(self._argv)
        job = job_here()
        element = {} if job is None or job.array_index is None else {"array_index": job.array_index}
        self._args, _ = clean({**element, "command": command})
        if run.info.pid == os.getpid():
            run.info.command = self._args["command"]
        self._ids = {
            "task": self._name,
            "task_id": task_id,
            "span_id": task_id,
            "trace_id": run.root.trace_id,
            "parent_id": run.root.span_id,
        }
        self._submitted_ns = monotonic_ns()
        run.emit(TaskSubmitted(timestamp=self._at(self._submitted_ns), args=self._args, **self._ids))
        for event in self._costs.begin():
            run.emit(event)

    @_never_hurting
    def not_started(self, problem: NotStarted) -> None:
        """The command could not be started."""
        missing = "CommandNotFound" if problem.code == NOT_FOUND else "CommandNotExecutable"
        self._failed(missing, str(problem), problem.code, None, None, {"worker": None, "duration_s": None})

    @_never_hurting
    def started(self, child: Child) -> None:
        """The command runs."""
        run, self._started_ns = self.run, monotonic_ns()
        host = run.recorder.host
        self._worker = {"worker": lane_name(host, child.pid, main=True), "host": host, "pid": child.pid}
        self._floor_bytes = own_peak_rss_bytes()
        self._gpu = begin(child.pid)
        self._oom = OomKills()
        at = self._at(self._started_ns)
        launched = WorkerLaunched(timestamp=at, **self._worker)
        run.emit(launched)
        self._costs.add(launched)
        queue_s = (self._started_ns - self._submitted_ns) / 1e9
        run.emit(TaskStarted(timestamp=at, worker=self._worker["worker"], queue_s=queue_s, **self._ids))
        self._in_a_job()
        self._tree.follow(ProcessSampler(child.pid, worker=self._worker["worker"], host=host))
        self._sample()

    def _in_a_job(self) -> None:
        """Say which job of a batch system this is, if it is one, and what it was given."""
        job = job_here(worker=self._worker["worker"], task_id=self._ids["task_id"], host=self._worker["host"])
        if job is None:
            return
        self.run.emit(job)
        given = {name: getattr(job, name) for name in ("cpus", "memory_bytes", "gpus", "walltime_s")}
        self.run.emit(ResourceRequest(task=self._name, task_id=self._ids["task_id"], **given))

    @_never_hurting
    def look(self) -> None:
        """The command has ended, and the kernel still knows what it used."""
        self._ended_ns = monotonic_ns()
        self._sample()

    @_never_hurting
    def ended(self, ended: Ended, tails: Mapping[str, OutputTail], unseen: Mapping[str, str]) -> None:
        """The command is over. `tails` are the ends of its output, `unseen` says why others are not known."""
        run, info = self.run, self.run.info
        if info.pid == os.getpid():
            info.exit_code, info.signal = ended.exit_code, ended.signal
        how = ended.signal or f"exit code {ended.status}"
        texts = {stream: tail.text() for stream, tail in tails.items()}
        fields = _output(texts, {stream: tail.total_bytes for stream, tail in tails.items()}, unseen)
        run.emit(UserEvent(name=OUTPUT, fields=fields, span_id=self._ids["span_id"]))
        used = self._used(ended)
        for sample in self._tree.finish(used["peak_rss_bytes"]):
            run.emit(sample)
        if ended.interrupted_by is not None:
            run.emit(TaskCancelled(reason=ended.interrupted_by, args=self._args, **used, **self._ids))
        elif ended.status == 0:
            run.emit(TaskCompleted(args=self._args, **used, **self._ids))
        else:
            message = (
                f"{self._name} ended with {how}" if ended.exit_code else f"{self._name} was ended by {how}"
            )
            kernel = self._oom.claim() if ended.signal == "SIGKILL" and self._oom is not None else None
            message += f" {kernel}" if kernel else ""
            last = next(
                (texts[stream] for stream in ("stderr", "output", "stdout") if texts.get(stream)), None
            )
            self._failed(ended.signal or "ExitCode", message, ended.exit_code, ended.signal, last, used)
        uptime_s = (self._ended_ns - self._started_ns) / 1e9
        run.emit(
            WorkerRemoved(timestamp=self._at(self._ended_ns), reason=how, uptime_s=uptime_s, **self._worker)
        )
        for estimate in self._costs.estimates():
            run.emit(estimate)

    def _failed(
        self,
        kind: str,
        message: str,
        exit_code: int | None,
        signal: str | None,
        output: str | None,
        used: dict[str, Any],
    ) -> None:
        if self.run.info.pid == os.getpid():
            self.run.info.exit_code = exit_code
        same = "\n".join([self._name, kind, str(exit_code)]).encode("utf-8", "surrogateescape")
        fingerprint = hashlib.sha256(same).hexdigest()[:16]
        cause: dict[str, Any] = {"error_type": kind, "exit_code": exit_code, "fingerprint": fingerprint}
        self.run.emit(TaskFailed(error_message=message, args=self._args, **cause, **used, **self._ids))
        where = {key: self._ids[key] for key in ("task", "task_id", "span_id")} | {"worker": used["worker"]}
        said: dict[str, Any] = {"message": message, "traceback": None, "output_tail": output}
        self.run.emit(Failure(scope="command", attempt=1, signal=signal, **said, **where, **cause))

    def _used(self, ended: Ended) -> dict[str, Any]:
        """What the command used, by the kernel's account of it and of the children it waited for."""
        seconds = (self._ended_ns - self._started_ns) / 1e9
        used = Usage() if self._gpu is None else self._gpu.stop()
        used.cpu_s, used.cpu_scope = ended.usage.ru_utime + ended.usage.ru_stime, "tree"
        largest = max_rss_bytes(ended.usage)
        used.peak_rss_bytes, used.rss_scope = _peak(largest, self._floor_bytes, self._tree)
        if (last := self._tree.last) is not None:
            used.read_bytes, used.write_bytes = last.read_bytes, last.write_bytes
        return {
            "timestamp": self._at(self._ended_ns),
            "worker": self._worker["worker"],
            "duration_s": seconds,
            "queue_s": (self._started_ns - self._submitted_ns) / 1e9,
            **usage_of(used),
        }

    def _sample(self) -> None:
        for sample in self._tree.sample():
            self.run.emit(sample)

    def _at(self, ns: int) -> str:
        return self.run.recorder.clock.iso(ns)


def _output(
    texts: Mapping[str, str], sizes: Mapping[str, int], unseen: Mapping[str, str]
) -> dict[str, str | int | None]:
    """What is known of each stream, stdout first."""
    fields: dict[str, str | int | None] = {}
    for stream in sorted({*texts, *unseen}, reverse=True):
        fields[stream] = texts.get(stream)
        fields[f"{stream}_bytes"] = sizes.get(stream)
    if unseen:
        fields["note"] = "; ".join(f"{stream} {why}" for stream, why in unseen.items())
    return fields


def _peak(
    largest: int, floor: int, tree: TreeSampler
) -> tuple[int | None, Literal["process", "process_at_least", "tree"] | None]:
    """The peak of resident memory, and whose it is.

    The kernel's mark of the largest process counts from before the command took the place of the process that
    started it, so it says something only above that one's own size, `floor`. The tree's peak is from samples.
    """
    exact = largest if largest > floor else None
    sampled = tree.peak_rss_bytes
    if sampled is not None and sampled > (exact or 0):
        # The kernel counts in batches: the two differ by pages.
        if exact is not None and tree.most_processes <= 1:
            return sampled, "process"
        return sampled, "tree" if tree.most_processes > 1 else "process_at_least"
    return exact, "process" if exact is not None else None
