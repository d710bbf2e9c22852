"""The program that tasks come from, for workers that were not started from it.

What the program itself defines, in its main file or at a prompt, travels by value where that is possible
(`pickling.dumps`). Where it is not, the worker imports the main file as `multiprocessing` does.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from typing import Any

import msgspec

from flightlog.engines.contract import Work

_imported = False
_error: BaseException | None = None


def main_program() -> dict[str, str]:
    """Where workers find the functions of the program that runs here; empty where it is no file they could
    import.
    """
    from multiprocessing import spawn

    found = spawn.get_preparation_data("flightlog")
    return {key: found[key] for key in ("init_main_from_name", "init_main_from_path") if found.get(key)}


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
