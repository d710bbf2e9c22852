"""A measured field is declared in one place: what `Usage` declares comes from the meter into every end, into
the relation of attempts and into Parquet.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import flightlog
from flightlog.engines.contract import Outcome
from flightlog.events import TaskCancelled, TaskCompleted, TaskFailed, Usage

PROGRAM = """\
import sys
import flightlog
from flightlog.samplers.usage import UsageMeter
from flightlog.session.session import Session

stop = UsageMeter.stop


def stop_and_count(meter):
    usage = stop(meter)
    usage.page_faults = 7
    return usage


UsageMeter.stop = stop_and_count
with Session.from_yaml(sys.argv[1], runs_dir=sys.argv[1], progress=False) as session:
    session.client.submit(abs, -1).result()
with flightlog.record("by-hand", runs_dir=sys.argv[1]) as run, run.task("simulate"):
    pass
"""
MANIFEST = "version: 1\nproject: {name: trial}\ntargets:\n  local: {provider: local, processes: false}\n"


@pytest.mark.parametrize("kind", [TaskCompleted, TaskFailed, TaskCancelled, Outcome])
def test_every_end_has_the_fields_of_usage_with_their_declared_types(kind):
    def types(of):
        fields = {field.name: field.type for field in msgspec.inspect.type_info(of).fields}
        return {name: fields[name] for name in Usage.__struct_fields__}

    assert types(kind) == types(Usage)


def test_a_field_that_is_added_to_usage_is_in_the_line_the_table_and_the_parquet_file(tmp_path):
    import duckdb

    copied = tmp_path / "src" / "flightlog"
    shutil.copytree(Path(flightlog.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    declarations = copied / "events" / "declarations.py"
    before = declarations.read_text()
    first = next(
        line for line in before.splitlines() if line.startswith("    cpu_s: ") and "cpu_scope" in line
    )
    added = f'    page_faults: Annotated[int | None, doc("pages that were fetched")] = None\n{first}'
    declarations.write_text(before.replace(first, added))
    (tmp_path / "flightlog.yaml").write_text(MANIFEST)

    def run(*command):
        environment = {"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        options = {"capture_output": True, "text": True, "env": environment, "cwd": tmp_path}
        done = subprocess.run([sys.executable, *command], **options, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-c", PROGRAM, str(tmp_path))
    query = "SELECT task, page_faults FROM attempts ORDER BY task"
    asked = run("-m", "flightlog", "sql", query, "--all", "--runs-dir", str(tmp_path), "--format", "csv")
    assert asked.splitlines() == ["task,page_faults", "abs,7", "simulate,7"]
    run("-m", "flightlog", "compact", "--all", "--runs-dir", str(tmp_path))
    for files in ("*/tasks.jsonl", "*/parquet/tasks.parquet"):
        found = duckdb.sql(
            f"SELECT page_faults FROM '{tmp_path}/{files}' WHERE event = 'task_completed'"
        ).fetchall()
        assert found == [(7,), (7,)]
