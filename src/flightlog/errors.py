"""The errors a caller may see, after the run.

FlightlogError
├── UsageError          what was asked for makes no sense: a bad option, size, date or switch
├── RunNotFound         no run of that name, id or path
├── AmbiguousRun        a prefix that several runs share
├── DamagedRun          a run directory that holds nothing readable
└── MissingExtra        an optional dependency is not installed

The recording path raises none of them: it counts what it could not record and says so once.
"""


class FlightlogError(Exception):
    """The base of all errors; its message says what was found, where, and what to do next."""


class UsageError(FlightlogError):
    """What was asked for makes no sense."""


class RunNotFound(FlightlogError):  # noqa: N818 - reads as what happened
    """No run has that name, id or path."""


class AmbiguousRun(FlightlogError):  # noqa: N818 - reads as what happened
    """Several runs share that prefix."""


class DamagedRun(FlightlogError):  # noqa: N818 - reads as what happened
    """A run directory that holds nothing readable."""


class MissingExtra(FlightlogError):  # noqa: N818 - reads as what happened
    """An optional dependency is not installed; the message holds the line that installs it."""
