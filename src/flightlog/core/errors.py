"""The errors a caller may see, after the run.

    FlightlogError
    ├── UsageError          what was asked for makes no sense: a bad option, size, date or switch
    ├── RunNotFound         no run of that name, id or path
    ├── AmbiguousRun        a prefix that several runs share
    ├── DamagedRun          a run directory that holds nothing readable
    ├── DamagedSnapshot     a Parquet snapshot that failed while it was read; asking again reads the lines
    │   └── FilesMoved      files that went away while they were read, because the run was completed meanwhile
    ├── ManifestError       a manifest that says something it cannot mean; all problems at once
    ├── TaskError           a task failed, and there is no exception of its own to raise
    │   └── CommandError    a command that ran as a task ended with another exit code than 0
    ├── RemoteError         a remote place for runs that does not answer, refuses, or holds something else
    └── MissingExtra        an optional dependency is not installed

The recording path raises none of them: it counts what it could not record and says so once.
"""

from collections.abc import Sequence

__all__ = [
    "AmbiguousRun",
    "CommandError",
    "DamagedRun",
    "DamagedSnapshot",
    "FlightlogError",
    "ManifestError",
    "MissingExtra",
    "RemoteError",
    "RunNotFound",
    "TaskError",
    "TaskTimeoutError",
    "UsageError",
]


class FlightlogError(Exception):
    """The base of all errors; its message says what was found, where, and what to do next."""

    exits_with = 2
    """Of a command that ends with it: 2 for what was asked wrongly, 1 for what was asked rightly and
    failed."""


class UsageError(FlightlogError):
    """What was asked for makes no sense."""


class RunNotFound(FlightlogError):  # noqa: N818 - reads as what happened
    """No run has that name, id or path."""


class AmbiguousRun(FlightlogError):  # noqa: N818 - reads as what happened
    """Several runs share that prefix."""


class DamagedRun(FlightlogError):  # noqa: N818 - reads as what happened
    """A run directory that holds nothing readable."""


class DamagedSnapshot(FlightlogError):  # noqa: N818 - reads as what happened
    """A Parquet snapshot failed while it was read. The same question, asked again, is answered from the
    lines.
    """

    exits_with = 1


class FilesMoved(DamagedSnapshot):
    """Files of a run went away while they were read, because a process put it together meanwhile. The same
    question, asked again, is answered.
    """


class ManifestError(FlightlogError):
    """A manifest is wrong; one line per problem, each with file, line, what was found and what was meant."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems, in the order of the checks; never none."""
        found: tuple[str, ...] = self.args[0]
        return found

    def __str__(self) -> str:
        return "\n".join(self.problems)


class RemoteError(FlightlogError):
    """A remote place for runs does not answer, refuses, is full, or holds something else than was put there.

    `kind` is one of `timeout refused server full denied credentials missing changed gone other`; `passing`
    says whether trying again later may help. The message holds no credentials.
    """

    kind: str = "other"
    passing: bool = False


class MissingExtra(FlightlogError):  # noqa: N818 - reads as what happened
    """An optional dependency is not installed; the message holds the line that installs it."""


class TaskError(FlightlogError):
    """A task failed, and there is no exception of its own to raise: it cannot be pickled, or nothing was
    raised here.

    `error_type` names the class of the original exception, or says what happened (`WorkerLost`,
    `TimeoutError`); `remote_traceback` is the traceback in the worker, if there was one.
    """

    error_type: str | None = None
    remote_traceback: str | None = None


class TaskTimeoutError(TaskError, TimeoutError):
    """A task did not end within its timeout: `except TimeoutError` catches it as `except TaskError` does."""


class CommandError(TaskError):
    """A command that ran as a task failed; `exit_code` or `signal` says how, the tails how its output
    ended.
    """

    exit_code: int | None = None
    signal: str | None = None
    stdout: str = ""
    stderr: str = ""
