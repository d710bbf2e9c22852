"""The page on remote copies does what it says, with a folder in the place of a bucket."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from builders.counted_remote import sync
from builders.runs import at, make_run

from flightlog.events import TaskCompleted, TaskSubmitted
from flightlog.store.integrity import write_checksums

PAGE = Path(__file__).parents[2] / "docs" / "remote.md"


def some_run(runs: Path, number: int) -> Path:
    events = [
        TaskSubmitted(timestamp=at(1), task="sim", task_id="a", args={"seed": 1}),
        TaskCompleted(
            timestamp=at(3), task="sim", task_id="a", args={"seed": 1}, worker="w1", duration_s=1.5
        ),
    ]
    start = {"start_time": at(60 * number), "end_time": at(60 * number + 10)}
    path = make_run(runs, events, token=f"a{number}b2c3d4", **start)
    write_checksums(path)
    return path


def test_the_part_on_reading_does_what_it_says(tmp_path: Path) -> None:
    reading = PAGE.read_text().partition("\n## Reading\n")[2]
    address = f"file://{tmp_path}/away"
    for number in range(2):
        sync(some_run(tmp_path / "runs", number), address)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLIGHTLOG_")}
    environ |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLIGHTLOG_REMOTE_CACHE": str(tmp_path / "copies"),
    }
    [commands] = re.findall(r"```bash\n(.*?)```", reading, re.DOTALL)
    [program] = re.findall(r"```python\n(.*?)```", reading, re.DOTALL)
    for command in (["sh", "-e", "-c", commands], [sys.executable, "-c", program]):
        words = [word.replace("s3://bucket/runs", address) for word in command]
        done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "completed 1.5\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["away", "copies", "runs"]
