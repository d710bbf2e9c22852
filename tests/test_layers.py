"""The folders tell the story: imports go one way, only the command line prints, the package is light to
import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import flightlog

ROOT = Path(flightlog.__file__).parent
LAYERS = [
    {"core", "errors", "unrecorded", "version"},
    {"events"},
    {"samplers"},
    {"store"},
    {"record"},
    {"engines"},
    {"analyze"},
    {"session"},
    {"testing"},
    {"export"},
    {"adopt"},
    {"show"},
    {"devices", "figures", "otel"},
    {"compat"},
    {"notebook", "tui", "web"},
    {"demo"},
    {"cli", "__main__"},
]
"""From the bottom up. A module imports from its own layer and those before it."""
APART = {
    ("analyze", "engines"),
    ("analyze", "record"),
    ("notebook", "tui"),
    ("notebook", "web"),
    ("tui", "web"),
}
"""Those that know nothing of each other, neither way."""
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
PACKAGE_ROOT_LEVEL = LEVEL["session"]
"""The names users import from `flightlog` itself come from here or below."""
MAY_POINT_UPWARDS = {
    ("flightlog", "flightlog.notebook.extension"),
    ("flightlog.store.readable", "flightlog.analyze.report.summary"),
}
"""What IPython calls by its name in the package itself, for `%load_ext flightlog`; and `run.summary()`, which
loads the analysis when it is called."""
MAY_USE_THE_PACKAGE_AS_USERS_DO = {"cli", "demo", "__main__"}
HEAVY = {
    "IPython",
    "asyncio",
    "duckdb",
    "matplotlib",
    "nicegui",
    "numpy",
    "pandas",
    "plotly",
    "rich",
    "textual",
    "typer",
    "yaml",
}

MODULES = {
    path.relative_to(ROOT.parent).with_suffix("").as_posix().removesuffix("/__init__").replace("/", "."): path
    for path in sorted(ROOT.rglob("*.py"))
}


def part_of(module: str) -> str:
    """The layer's name in a module's: `store` of `flightlog.store.layout`; empty for the package itself."""
    return module.removeprefix("flightlog").lstrip(".").partition(".")[0]


def imports(module: str) -> Iterator[tuple[int, str, str]]:
    """Line, module and name (if one is named) of every import of ours, inside functions too.

    Lazy imports name their module in a string: in the package's `__init__` those count as well.
    """
    path = MODULES[module]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield (node.lineno, inner, "") if inner in MODULES else (node.lineno, base, alias.name)
        elif module == "flightlog" and isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"(flightlog)?(\.\w+)+", node.value):
                yield node.lineno, "flightlog" + node.value.removeprefix("flightlog"), ""


def imports_of_ours(module: str) -> Iterator[tuple[int, str, str]]:
    return (found for found in imports(module) if found[1].partition(".")[0] == "flightlog")


def test_every_module_has_its_place_in_the_layers():
    assert [module for module in MODULES if module != "flightlog" and part_of(module) not in LEVEL] == []


def test_a_module_imports_from_its_own_layer_and_those_below():
    upward = [
        f"{module}:{line} imports {target}"
        for module in MODULES
        for line, target, _ in imports_of_ours(module)
        if part_of(target)
        and (module, target) not in MAY_POINT_UPWARDS
        and LEVEL.get(part_of(target), len(LAYERS))
        > (LEVEL.get(part_of(module), -1) if part_of(module) else PACKAGE_ROOT_LEVEL)
    ]
    assert upward == []


def test_what_runs_a_program_and_what_reads_runs_do_not_know_each_other_nor_do_the_displays():
    assert [
        f"{module}:{line} imports {target}"
        for module in MODULES
        for line, target, _ in imports_of_ours(module)
        if tuple(sorted((part_of(module), part_of(target)))) in APART
    ] == []


def test_recording_names_no_module_of_the_analysis_in_a_text():
    assert [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        if part_of(module) in {"engines", "record", "store"}
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"flightlog(\.| import )analyze", node.value)
    ] == []


def test_one_module_names_another_above_it_in_a_text():
    named = [
        module
        for module, path in MODULES.items()
        if part_of(module) not in {"", "notebook", "cli"}
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"flightlog\.notebook(\.\w+)*", node.value)
    ]
    assert named == ["flightlog.core.displayed"]


def test_only_the_command_line_and_the_demo_use_the_package_as_users_do():
    users = [
        f"{module}:{line} imports {name or 'flightlog'} from the package itself"
        for module in MODULES
        if part_of(module) not in MAY_USE_THE_PACKAGE_AS_USERS_DO
        for line, target, name in imports_of_ours(module)
        if target == "flightlog"
    ]
    assert users == []


def test_only_the_command_line_prints():
    printing = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        if part_of(module) not in {"cli", "__main__"}
        and module != "flightlog.notebook.live"  # a display in a console is what `follow` was asked for
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "echo", "typer.echo"})
        or (isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.stdout.write")
    ]
    assert printing == []


def test_recording_waits_and_locks_with_real_primitives_alone():
    """Those of `threading`, `queue` and `time` are greenlets' where gevent or eventlet patched them."""
    patchable = {
        *(f"threading.{name}" for name in ("Condition", "Event", "Lock", "RLock", "local")),
        *("queue.Queue", "queue.SimpleQueue", "threading.Thread", "time.sleep"),
    }
    used = [
        f"{module}:{node.lineno} calls {ast.unparse(node.func)}"
        for module, path in MODULES.items()
        if part_of(module) in {"record", "samplers"}
        or module
        in {f"flightlog.store.{name}" for name in ("page", "sealing", "segment", "stream", "tail", "writer")}
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in patchable
    ]
    assert used == []


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys; before = set(sys.modules); import flightlog; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "flightlog" in loaded
    assert loaded & HEAVY == set()


def test_no_test_imports_another():
    """What tests share stands in `tests/builders`, or beside them under a name that says what it is."""
    tests = Path(__file__).parent
    assert [
        f"{path.relative_to(tests)}:{node.lineno}"
        for path in sorted(tests.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("test_"))
        or (isinstance(node, ast.Import) and any(alias.name.startswith("test_") for alias in node.names))
    ] == []


def _imported(tree: ast.AST) -> Iterator[str]:
    """Modules that a module imports when it runs, inside functions too; not what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        else:
            yield from _imported(node)


def test_no_more_than_three_modules_import_each_other_in_a_circle():
    imported = {
        module: {found for found in _imported(ast.parse(path.read_text("utf-8"))) if found in MODULES}
        for module, path in MODULES.items()
        if module != "flightlog"
    }
    reached = {}
    for module in imported:
        seen, left = set(), [module]
        while left:
            for found in imported.get(left.pop(), ()):
                if found not in seen:
                    seen.add(found)
                    left.append(found)
        reached[module] = seen
    circles = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, ())))
        for module in imported
    }
    assert [circle for circle in circles if len(circle) > 3] == []
