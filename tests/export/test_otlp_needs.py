"""What is needed for which way out, said where it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from otlp_lives import a_run

PROGRAM = """
import sys
sys.modules["opentelemetry"] = sys.modules["requests"] = sys.modules["google"] = None
from flightlog.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def flightlog(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True)


def test_the_file_needs_no_library(tmp_path: Path):
    run = a_run(tmp_path)
    done = flightlog("export", str(run.path), "--to", "otlp-json", "--output", str(tmp_path / "out.jsonl"))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.jsonl").stat().st_size > 0


def test_without_the_extra_sending_says_what_to_install(tmp_path: Path):
    done = flightlog("export", str(a_run(tmp_path).path), "--to", "otlp")
    assert done.returncode == 2
    assert "pip install" in done.stderr
    assert "flightlog[otel]" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
