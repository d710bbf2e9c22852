"""What the documentation says is so."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from builders.documents import ROOT, blocks, run_in

import flightlog
from flightlog.cli.main import COMMANDS
from flightlog.core.alerts import WORDS, Alert, read_entries

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readmes_code_runs_as_it_stands(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("completed\ncount    3.0")


def test_the_guide_to_sessions_does_what_it_says(tmp_path):
    page = ROOT / "docs" / "sessions.md"
    [manifest] = blocks(page, "yaml")
    program, *inside = blocks(page, "python")
    (tmp_path / "flightlog.yaml").write_text(manifest)
    (tmp_path / "sweep.py").write_text(program)
    before, check = blocks(page, "bash")
    run_in(tmp_path, "sh", "-e", "-c", before)
    assert run_in(tmp_path, sys.executable, "sweep.py") == f"{sum(simulated(x, 100) for x in range(20))}\n"
    lines = "".join(inside).splitlines()
    body = "\n".join(f"        {line}" for line in ["client = session.client", *lines])
    head = program.partition("if __name__")[0]
    (tmp_path / "more.py").write_text(
        f'{head}if __name__ == "__main__":\n    with Session.from_yaml() as session:\n{body}\n'
    )
    done = subprocess.run(
        [sys.executable, "more.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    first, *rest = done.stdout.splitlines()
    assert int(first) == simulated(3, 50) + sum(simulated(x, 10) for x in range(5))
    assert sorted(rest[:5]) == sorted(f"simulate {simulated(x, 100)}" for x in range(5))
    assert rest[5:] == ["0 100 steps", ""]
    assert done.stderr.splitlines()[0] == "1 of 16 tasks failed:"
    assert done.returncode == 0
    assert "the manifest" not in run_in(tmp_path, "sh", "-c", check)
    assert "Submitted:     16\n" in run_in(tmp_path, "flightlog", "report")


def test_the_guide_to_sessions_in_an_event_loop_does_what_it_says(tmp_path):
    [manifest] = blocks(ROOT / "docs" / "sessions.md", "yaml")
    program, *inside = blocks(ROOT / "docs" / "async.md", "python")
    (tmp_path / "flightlog.yaml").write_text(manifest)
    (tmp_path / "search.py").write_text(program)
    first, *each, last = run_in(tmp_path, sys.executable, "search.py").splitlines()
    values = [simulated(x, 100) for x in range(20)]
    assert (int(first), int(last)) == (simulated(3, 100), sum(values))
    assert sorted(each) == sorted(f"simulate {value}" for value in values)
    before, _, after = program.partition("        print(await")
    body = "".join(f"        {line}\n" for line in "".join(inside).splitlines())
    (tmp_path / "more.py").write_text(before + body + "\n\n" + after[after.index("if __name__") :])
    assert run_in(tmp_path, sys.executable, "more.py").splitlines() == ["5 chains", "given up"]


def test_the_example_of_a_search_finds_a_good_scenario(tmp_path):
    said = run_in(tmp_path, sys.executable, str(ROOT / "examples" / "async_search.py"))
    assert re.fullmatch(r"x = 3\.\d is (99|100)% good\n|x = 2\.9 is 99% good\n", said)


def test_the_guide_to_live_events_does_what_it_says(tmp_path):
    (tmp_path / "live.py").write_text("\n".join(blocks(ROOT / "docs" / "live.md", "python")))
    said = run_in(tmp_path, sys.executable, "live.py").splitlines()
    assert said == ["0 1.0", "1 0.5", "2 0.33", "0", "[1, 2]", "loss 0.5", "loss 0.25"]


def simulated(scenario: int, steps: int) -> int:
    return sum((scenario * step) % 7 for step in range(steps))


def test_the_guide_to_the_cache_does_what_it_says(tmp_path):
    page = ROOT / "docs" / "caching.md"
    (tmp_path / "program.py").write_text("\n".join(blocks(page, "python")))
    for _ in range(2):
        assert run_in(tmp_path, sys.executable, "program.py") == ""
    [commands] = blocks(page, "bash")
    said = run_in(tmp_path, "sh", "-e", "-c", commands)
    assert "program.simulate" in said
    assert said.endswith("Removed 0 results, 0 B; 2 results, " + said.rpartition("2 results, ")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_page(command):
    assert (ROOT / "docs" / "commands" / f"{command}.md").exists()


def test_every_setting_is_documented():
    from flightlog.core.settings import DOCUMENTED

    page = (ROOT / "docs" / "settings.md").read_text()
    assert [name for name in DOCUMENTED if name not in page] == []


def test_the_public_names_are_these():
    assert flightlog.__all__ == [
        "Collector",
        "Run",
        "Session",
        "__version__",
        "advise",
        "attached",
        "cacheable",
        "carrier",
        "compare",
        "current_run",
        "current_span",
        "define_event",
        "diagnose",
        "diagnose_text",
        "open_run",
        "predict",
        "record",
        "report",
        "span",
        "track_device_memory",
        "trends",
        "watch",
    ]
    assert all(hasattr(flightlog, name) for name in flightlog.__all__)


def test_the_tests_that_the_page_on_verdicts_names_exist():
    table = (ROOT / "docs" / "verdicts.md").read_text().partition("## Earlier defects")[2]
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {
        name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M)
    }
    named = re.findall(r"`(?:\w+\.py: )?(test_\w+(?:\.py)?)`", table)
    assert len(named) > 50
    assert set(named) <= known | {file.name for file in files}


def test_the_walks_name_modules_that_exist():
    page = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", page[page.index("## Four walks") :])
    assert len(named) > 40
    assert [name for name in named if not (ROOT / "src" / "flightlog" / name).exists()] == []


def test_the_guide_to_alerts_does_what_it_says(tmp_path, monkeypatch):
    monkeypatch.setenv("ALERT_ADDRESS", "ntfy://topic")
    page = ROOT / "docs" / "alerts.md"
    [manifest] = blocks(page, "yaml")
    (tmp_path / "flightlog.yaml").write_text(manifest)
    assert (
        run_in(tmp_path, "flightlog", "validate") == "flightlog.yaml: ok, 1 target, 0 components, 0 tasks\n"
    )
    [program] = blocks(page, "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    assert done.stderr.startswith("alert: the run completed after ")
    entries, alert = blocks(page, "json")
    assert [one.when for one in read_entries(entries)] == [("failed", "stuck")]
    assert json.loads(alert).keys() == set(Alert.__struct_fields__)
    [every_run] = [one for one in blocks(page, "bash") if "export FLIGHTLOG_ALERTS" in one]
    assert read_entries(every_run.partition("'")[2].rpartition("'")[0])[0].when == ("failed", "stuck")
    assert [word for word in WORDS if f"`{word}`" not in page.read_text()] == []
