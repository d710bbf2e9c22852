"""The program that a worker process imports to find its functions: it must be there, and start nothing."""

from __future__ import annotations

import sys
from pathlib import Path

from flightlog.core.errors import UsageError


def refuse_while_main_is_imported(what: str) -> None:
    """A `UsageError` while a new process imports the main module of its parent: what is started there never
    ends.

    `what` is what the program would start. Imports nothing: without `multiprocessing` there is no such
    process.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise UsageError(
            f"this program starts {what} when it is imported, and worker processes import it to find its functions: "
            'put what the program runs under `if __name__ == "__main__":`'
        )


def refuse_main_without_a_file() -> None:
    """A `UsageError` where new processes would look for the main module in a file that is not there."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and file is not None and not Path(file).exists():
        raise UsageError(
            f"worker processes import the program to find its functions, and there is no file {file}: "
            "save the program as a file, or use threads (`processes: false`)"
        )
