"""What a run was made of, on a page: where it ran, its code, its command, packages and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flightlog.show.document import Facts, Table
from flightlog.show.html.elements import Element, tag
from flightlog.show.html.page import Part
from flightlog.show.html.sections import block_of, table_of
from flightlog.show.phrases import args_text, count_text

if TYPE_CHECKING:
    from flightlog.analyze.compare_environment import Facts as Surroundings
    from flightlog.analyze.report import Report

_LISTS = {"package": "Packages", "variable": "Variables", "function": "Functions", "image": "Images"}
_LONGEST = 500
"""Rows of a list."""


def environment_part(report: Report, around: Surroundings | None) -> Part:
    """The facts of the run, then what else was around it, where that was recorded."""
    run = report.run
    pairs = [
        ("Host", run.host),
        ("Command", " ".join(run.command)),
        ("Folder", run.cwd or ""),
        ("Python", run.python or ""),
        (
            "Git commit",
            f"{run.git_commit}{', with changes' if run.git_dirty else ''}" if run.git_commit else "",
        ),
        ("Tags", args_text(run.tags, 600)),
        ("Target", run.target or ""),
        ("Provider", run.provider or ""),
        ("Manifest", run.manifest_hash or ""),
        ("Flightlog", run.flightlog_version or ""),
    ]
    around = around or {}
    pairs += [
        (name[:1].upper() + name[1:], value) for (what, name), value in around.items() if what == "machine"
    ]
    if ("git", "branch") in around:
        pairs.append(("Git branch", around["git", "branch"]))
    content = [*block_of(Facts([(label, value) for label, value in pairs if value]))]
    for what, title in _LISTS.items():
        content += _list(title, [(name, value) for (kind, name), value in around.items() if kind == what])
    return Part("environment", "Environment", content)


def _list(title: str, rows: list[tuple[str, str]]) -> list[Element]:
    if not rows:
        return []
    table = Table(("Name", "Value"), sorted(rows), left=("Value",))
    return [
        tag(
            "details",
            tag("summary", f"{title}: {count_text(len(rows), 'entry', 'entries')}"),
            table_of(table, title, most=_LONGEST),
            class_="list",
        )
    ]
