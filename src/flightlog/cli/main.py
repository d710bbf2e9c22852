"""The command line: one command per file, and only the file of the command is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flightlog.core.errors import DamagedSnapshot, FlightlogError
from flightlog.version import __version__

if TYPE_CHECKING:
    import typer

PROGRAM = "flightlog"
GROUPS = {
    "Record": ("run", "adopt", "demo"),
    "Look": ("list", "report", "timeline", "top", "follow", "alert", "ui", "sql"),
    "Understand": ("diagnose", "compare", "trends", "devices", "advise", "predict"),
    "Manage": ("validate", "plan", "explain", "cache", "compact", "verify", "gc", "scrub"),
    "Share": ("export", "sync", "serve-metrics", "schema"),
}
"""Every command, in the groups and the order of `--help`.

`serve-metrics` is the function `serve_metrics` in `cli/serve_metrics.py`; `list` is `list_`, since Python has
a `list` of its own. The function takes its options as Typer reads them from its parameters, and its docstring
is the help. The module's docstring opens the command's page; its `CONTEXT_SETTINGS`, where there are any,
change how arguments are read, and its `COMMAND_CLASS` how they are shown; its `DOING` is what a line on the
terminal says while it takes longer than a second, and a command without it shows none. A command with
sub-commands is a `Typer` of its own in the place of the function.
"""
COMMANDS = tuple(name for names in GROUPS.values() for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and give its exit code: 0, 1 for a finding or a failure, 2 for misuse or a missing
    run.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:  # loading Typer would take longer than all the rest
        print(f"{PROGRAM} {__version__}")
        return 0
    from flightlog.cli.output import BROKEN_PIPE, discard_output, note

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # no UTF-8 there: escapes, and not a crash
    try:
        with _warnings_as_notes():
            return _run(args)
    except FlightlogError as error:
        note(str(error))
        return error.exits_with
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard_output()
        return BROKEN_PIPE
    except OSError as error:
        note(str(error))
        return 1


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show what the library warns of as the commands' own messages are shown."""
    import warnings

    from flightlog.cli.output import note

    with warnings.catch_warnings():
        show = warnings.showwarning

        def shown(message: Warning | str, category: type[Warning], *args: Any, **options: Any) -> None:
            note(str(message)) if category is UserWarning else show(message, category, *args, **options)

        warnings.showwarning = shown
        yield


def _run(args: list[str]) -> int:
    from typer.main import get_command

    completing = f"_{PROGRAM.upper()}_COMPLETE" in os.environ
    one = bool(args) and args[0] in COMMANDS and not completing
    command = get_command(make_app(args[:1] if one else COMMANDS))
    try:
        command.main(args, prog_name=PROGRAM)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    return 0


def module_of(command: str) -> ModuleType:
    """The module of a command, loaded."""
    return import_module(f"flightlog.cli.{command.replace('-', '_')}")


def make_app(names: Iterable[str]) -> typer.Typer:
    """The application with these commands."""
    import typer

    app = typer.Typer(
        name=PROGRAM,
        cls=_grouped_help(),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            print(f"{PROGRAM} {__version__}")
            raise typer.Exit

    @app.callback()
    def flightlog(
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Show the version and exit."
        ),
    ) -> None:
        """The flight recorder for Python compute: what happened in a run, and why."""

    for name in names:
        module, function = module_of(name), name.replace("-", "_")
        found = getattr(module, function, None) or getattr(module, f"{function}_")
        doing = getattr(module, "DOING", None)
        if isinstance(found, typer.Typer):
            for one in found.registered_commands:
                one.callback = _with_progress(doing, one.callback)
            app.add_typer(found, name=name)
        else:
            settings = getattr(module, "CONTEXT_SETTINGS", None)
            kind = getattr(module, "COMMAND_CLASS", None)
            app.command(name, cls=kind, context_settings=settings)(_with_progress(doing, found))
    return app


def _grouped_help() -> type[typer.core.TyperGroup]:
    """A group of commands whose help lists them under the headings of `GROUPS`."""
    from typer.core import TyperGroup

    class GroupedHelp(TyperGroup):
        def format_commands(self, ctx: Any, formatter: Any) -> None:
            for heading, names in GROUPS.items():
                found = [(name, self.get_command(ctx, name)) for name in names]
                rows = [(name, command.get_short_help_str(limit=100)) for name, command in found if command]
                if rows:
                    with formatter.section(heading):
                        formatter.write_dl(rows)

    return GroupedHelp


def _with_progress(doing: str | None, command: Callable[..., Any] | None) -> Callable[..., Any]:
    """The command, with a line on the terminal that says what it does; the same to Typer, which reads its
    signature.
    """
    from flightlog.cli.output import has_printed
    from flightlog.cli.progress import working

    assert command is not None
    if doing is None or hasattr(command, "__wrapped__"):
        return command

    @wraps(command)
    def said(*args: Any, **options: Any) -> Any:
        with working(doing):
            try:
                return command(*args, **options)
            except DamagedSnapshot:
                if has_printed():
                    raise
                return command(*args, **options)  # from the lines

    return said


if __name__ == "__main__":
    sys.exit(main())
