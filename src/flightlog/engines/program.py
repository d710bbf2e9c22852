"""The user's program as its workers need it: importable without side effects, or sent by value.

What the program itself defines, in its main file or at a prompt, travels by value where that is possible
(`dumps`). Where it is not, the worker imports the main file as `multiprocessing` does.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from flightlog.core.errors import UsageError
from flightlog.engines.contract import Work

_imported = False
_error: BaseException | None = None


def main_program() -> dict[str, str]:
    """Where workers find the functions of the program that runs here; empty where it is no file they could
    import.

    As `multiprocessing.spawn.get_preparation_data` has it, which would settle the program's start method.
    """
    from multiprocessing import process

    main = sys.modules["__main__"]
    if name := getattr(getattr(main, "__spec__", None), "name", None):
        return {"init_main_from_name": name}
    file = getattr(main, "__file__", None)
    if file is None:
        return {}
    began_in = getattr(process, "ORIGINAL_DIR", None) or ""
    return {"init_main_from_path": os.path.normpath(Path(began_in) / file)}


def with_main(work: Work, main: dict[str, str]) -> Work:
    """In a worker: the attempt, with the main program imported if its call names it and does not bring it
    along.

    It is imported once, under another name, as `multiprocessing` does it. What it raises then is what each
    attempt that needs it fails by.
    """
    if not main or b"__main__" not in work.call or b"cloudpickle" in work.call:
        return work
    global _imported, _error
    if not _imported:
        _imported = True
        from multiprocessing import spawn

        process: Any = multiprocessing.current_process()
        process._inheriting = True  # a program that starts a session when it is imported is told so
        try:
            spawn.prepare(dict(main))
        except BaseException as error:  # noqa: BLE001 - the program's own code; its tasks fail with it
            _error = error
        finally:
            del process._inheriting
    return work if _error is None else msgspec.structs.replace(work, call=pickle.dumps((_no_main, (), {})))


def add_paths(paths: list[str]) -> None:
    """In a worker: look for modules where the program does, too."""
    sys.path.extend(path for path in paths if path not in sys.path)


def _no_main() -> None:
    assert _error is not None
    raise _error


def refuse_while_main_is_imported(what: str) -> None:
    """A `UsageError` while a new process imports the main module of its parent: what is started there never
    ends.

    `what` is what the program would start. Imports nothing: without `multiprocessing` there is no such
    process.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise UsageError(
            f"this program starts {what} when it is imported, and worker processes import it to find its "
            "functions: "
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


def dumps(value: Any, cloudpickle: str = "cloudpickle", *, main_is_there: bool = False) -> bytes:
    """The value as plain pickle if that is enough anywhere, else by the module `cloudpickle`: what `__main__`
    defines.

    Where workers can import the main program (`main_is_there`, see `program.with_main`), plain pickle is also
    enough for what cannot travel by value. Raises whatever either pickle does where neither can.
    """
    plain = b""
    try:
        plain = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if b"__main__" not in plain:
            return plain
    # A lambda, or what else only cloudpickle knows; it raises anew if it does not.
    except Exception:  # noqa: BLE001
        plain = b""
    try:
        made: bytes = import_module(cloudpickle).dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        if not (plain and main_is_there):
            raise
        return plain
    return made
