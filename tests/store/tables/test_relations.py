"""Who makes a relation and who reads it: what a module reads by name is made by itself, or by the tables."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import flightlog
from flightlog.store.tables.run_tables import OF_ONE_RUN

ROOT = Path(flightlog.__file__).parent
CREATED = re.compile(r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP\s+)?(?:TABLE|VIEW)\s+(\w+)", re.IGNORECASE)
READ = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO)\s+(\w+)")
MADE_BY_CALL = {"merge": 1, "keep": 0, "create_table": 1}
"""Functions that make a table, and where they are given its name."""
SHARED = {
    "analyze.charts": "`lay_out_items` makes what charts draw, and gives it as `TimelineItems`",
    "analyze.compare": "the runs that are compared are laid side by side once",
    "analyze.diagnosis": "`group` says what ended and of what, for all that explains it",
    "analyze.failures": "a diagnosis marks failures before they are grouped",
}
"""Tables that functions of other modules make and hand over, each with its reason."""


def made_in(tree: ast.AST) -> set[str]:
    """The tables that a module makes."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    found = {name for text in texts if isinstance(text, str) for name in CREATED.findall(text)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            place = MADE_BY_CALL.get(called)
            if place is not None and len(node.args) > place and isinstance(node.args[place], ast.Constant):
                found.add(str(node.args[place].value))
    return found


def read_in(tree: ast.AST) -> set[str]:
    """The tables that its statements name; not what a statement names by WITH."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return {name for text in texts if isinstance(text, str) for name in READ.findall(text)}


def test_no_module_reads_a_table_that_another_one_made() -> None:
    trees = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(ROOT.rglob("*.py"))
        if "analyze" in path.parts or "export" in path.parts
    }
    makers: dict[str, set[str]] = {}
    for module, tree in trees.items():
        for name in made_in(tree):
            makers.setdefault(name, set()).add(module)
    found = []
    for module, tree in trees.items():
        text = ast.unparse(tree)
        for name in read_in(tree) & makers.keys() - made_in(tree) - OF_ONE_RUN.keys():
            within = re.search(rf"\b{name}\s+AS\s+(?:(?:NOT\s+)?MATERIALIZED\s+)?\(|\) AS {name}\b", text)
            if not within and not any(one.startswith(tuple(SHARED)) for one in makers[name]):
                found.append(f"{module} reads {name}, which {', '.join(sorted(makers[name]))} makes")
    assert found == []
