"""The dashboard's report of a run that is being written is one of a single moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from builders.runs import at, make_run
from viewing import look

from flightlog.events import Metric
from flightlog.store import layout
from flightlog.store.liveness import process_start, this_host

pytestmark = pytest.mark.skipif(os.name != "posix", reason="copies are held by locks of the kernel")


def test_lines_that_are_in_two_places_on_their_way_are_no_trouble_in_the_report(tmp_path: Path) -> None:
    pid = os.getpid()
    lives = {"host": this_host(), "pid": pid, "pid_start": process_start(pid)}
    events = [Metric(timestamp=at(second), name="loss", value=0.5) for second in range(3)]
    path = make_run(tmp_path, events, status="running", end_time=None, duration_s=None, **lives)
    folder = layout.writer_folder(path, "w0000001")
    folder.mkdir(parents=True)
    lines = layout.stream_file(path, "metrics").read_bytes()
    layout.tail_file(folder, "metrics", "a").write_bytes(lines + bytes(100))
    later = time.time() + 60
    os.utime(layout.stream_file(path, "metrics"), (later, later))  # as it is just being written to

    async def doing(client, _):
        return await client.get(f"/run/{path.name}/report")

    page = look(tmp_path, doing)
    assert (page.status_code, path.name in page.text) == (200, True)
    assert "standing twice" not in page.text
