"""`%load_ext flightlog`: the cells of a notebook are recorded as a run, and `%flightlog` is there."""

from __future__ import annotations

from typing import Any

from flightlog.notebook.cells import CellRecorder
from flightlog.notebook.magics import Magic
from flightlog.notebook.notes import begun
from flightlog.notebook.updating import display_here

_LOADED = "_flightlog_cells"


def load(shell: Any) -> None:
    """Begin a run, and record every cell after the present one; loaded twice, it is loaded once."""
    if getattr(shell, _LOADED, None) is not None:
        return
    cells = CellRecorder(shell)
    setattr(shell, _LOADED, cells)
    shell.events.register("pre_run_cell", cells.begin)
    shell.events.register("post_run_cell", cells.end)
    shell.input_transformers_cleanup.insert(0, cells.strip_name)
    shell.register_magic_function(Magic(cells), "line", "flightlog")
    display_here(begun(cells.start()))


def unload(shell: Any) -> None:
    """End the run, and leave the shell as it was."""
    cells = getattr(shell, _LOADED, None)
    if cells is None:
        return
    setattr(shell, _LOADED, None)
    shell.events.unregister("pre_run_cell", cells.begin)
    shell.events.unregister("post_run_cell", cells.end)
    if cells.strip_name in shell.input_transformers_cleanup:
        shell.input_transformers_cleanup.remove(cells.strip_name)
    shell.magics_manager.magics["line"].pop("flightlog", None)
    cells.stop()
