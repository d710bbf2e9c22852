"""Writes the generated pages of the documentation: `python -m flightlog.cli.reference docs`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flightlog.cli.limits import CliLimits
from flightlog.cli.main import COMMANDS, PROGRAM, make_app, module_of
from flightlog.core.settings import DOCUMENTED
from flightlog.events.schema import reference_page


def pages() -> dict[str, str]:
    """Every generated page by its path under `docs`."""
    commands = {f"commands/{name}.md": command_page(name) for name in COMMANDS}
    return {"events.md": reference_page(), "settings.md": settings_page(), **commands}


def settings_page() -> str:
    """The environment variables, each with its meaning."""
    rows = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in DOCUMENTED.items())
    intro = (
        "Arguments come first, then these environment variables. A value that makes no sense is a message "
        "in the\nlog, and the default holds."
    )
    return f"# Settings\n\n{intro}\n\n| variable | meaning |\n|---|---|\n{rows}\n"


def command_page(name: str) -> str:
    """The page of one command: what its module says, then its help."""
    about = inspect.getdoc(module_of(name))
    return f"# {PROGRAM} {name}\n\n{about}\n\n## Help\n\n```text\n{help_text(name)}\n```\n"


def help_text(name: str) -> str:
    """What `flightlog NAME --help` prints, at a fixed width; then the same of each of its sub-commands."""
    import typer
    from typer.main import get_command

    def texts(command: Any, context: typer.Context) -> Iterator[str]:
        with context:
            yield str(command.get_help(context)).rstrip()
            for sub, found in getattr(command, "commands", {}).items():
                yield from texts(found, typer.Context(found, info_name=sub, parent=context))

    group: Any = get_command(make_app([name]))
    settings = {**group.context_settings, "terminal_width": CliLimits.reference_width}
    with typer.Context(group, info_name=PROGRAM, **settings) as outer:
        command = group.get_command(outer, name)
        return "\n\n".join(texts(command, typer.Context(command, info_name=name, parent=outer)))


def write_pages(folder: Path) -> None:
    """Write every page, and the folders they stand in."""
    for name, text in pages().items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
