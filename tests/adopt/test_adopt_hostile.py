"""Values that no tool should write: they cost themselves alone, and nothing raises but errors that say what
was found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from adopting import PEERS, STORMLOG, adopt_all, adopt_one, events_of
from hypothesis import given, settings
from hypothesis import strategies as st

from flightlog.adopt import adopt_path
from flightlog.adopt.run_maker import AdoptOptions
from flightlog.cli.main import main
from flightlog.core.errors import FlightlogError, UsageError
from flightlog.events import TaskCancelled, TaskCompleted, TaskFailed, TaskSubmitted

HEAD = "task_id\tname\tstatus\texit\tsubmit\trealtime\n"


def test_a_nextflow_row_without_a_time_counts_at_the_last_moment_known(tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text(
        f"{HEAD}1\tA (1)\tABORTED\t-\t-\t-\n2\tB\tCOMPLETED\t0\t2026-05-20 03:52:00.000\t4s\n"
        "3\tC\tFAILED\t1\t-\t2s\n"
    )
    adoption, run = adopt_one(tmp_path / "trace.txt", tmp_path / "runs")
    tasks = events_of(run, "tasks")
    kinds = (TaskCompleted, TaskFailed, TaskCancelled)
    assert sum(isinstance(event, TaskSubmitted) for event in tasks) == 3
    assert [(type(e).__name__, e.task, e.duration_s, e.timestamp) for e in tasks if isinstance(e, kinds)] == [
        ("TaskCompleted", "B", 4.0, "2026-05-20T03:52:00.000000Z"),
        ("TaskFailed", "C", 2.0, "2026-05-20T03:52:00.000000Z"),
        ("TaskCancelled", "A", None, "2026-05-20T03:52:00.000000Z"),
    ]
    assert adoption.mapped["rows without a time → at the last moment known before"] == 2
    assert adoption.problems == []


def test_one_recording_that_holds_nothing_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    (traces / "a.txt").write_text(HEAD)
    (traces / "b.txt").write_text(f"{HEAD}2\tB\tCOMPLETED\t0\t2026-05-20 03:52:00.000\t4s\n")
    monkeypatch.setenv("FLIGHTLOG_RUNS_DIR", str(tmp_path / "runs"))
    assert main(["adopt", str(traces)]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("Nextflow trace file made into run-20260520T035200Z-b-")
    assert err == (
        f"flightlog: 1 of 2 recordings could not be adopted: {traces / 'a.txt'} holds no event with a time: "
        "there is "
        "nothing to adopt\n"
    )
    with pytest.raises(UsageError, match=r"a\.txt holds no event"):
        adopt_all(traces, tmp_path / "runs")


def test_durations_and_times_outside_of_all_calendars_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text("time: t\ntime_unit: ms\nname: n\nduration: d\nelapsed: e\n")
    lines = [
        '{"t": 1779249120000, "n": "a", "d": 1e300, "e": -1}',
        '{"t": 1e300, "n": "b"}',
        '{"t": 99999999999999999, "n": "c"}',
        '{"t": 1779249120000, "n": "d", "d": 2, "e": NaN}',
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    adoption, run = adopt_one(tmp_path / "x.jsonl", tmp_path / "runs", mapping=tmp_path / "map.yaml")
    done = [event for event in events_of(run, "tasks") if isinstance(event, TaskCompleted)]
    assert [(event.task, event.duration_s, event.metrics) for event in done] == [
        ("a", None, {}),
        ("d", 2.0, {}),
    ]
    assert adoption.dropped == {"lines without a time": 2}


@pytest.mark.parametrize(
    "column",
    [
        ["x"],
        [None],
        5,
        {"__ndarray__": "A", "dtype": "float64"},
        {"type": "ndarray", "array": {"data": "H4sIAAAA"}, "dtype": "float64"},
    ],
)
def test_a_report_of_dask_with_a_damaged_column_is_refused(tmp_path: Path, column: Any) -> None:
    columns = {
        "start": column,
        "duration": [2],
        "key": ["k"],
        "name": ["n"],
        "worker": ["w"],
        "worker_thread": ["1"],
    }
    (tmp_path / "r.html").write_text(
        f'Dask bokeh <script type="application/json">{json.dumps({"x": columns})}</script>'
    )
    with pytest.raises(UsageError, match=r"r\.html holds no"):
        adopt_one(tmp_path / "r.html", tmp_path / "runs")


ODD = st.one_of(
    st.sampled_from(
        [
            1e308,
            -1e308,
            float("nan"),
            float("inf"),
            10**30,
            -(10**30),
            2**63,
            "\ud800",
            "x" * 20_000,
            "0x",
            "0xzz",
            "a\nb\0c",
            {"\ud800": 1},
            [[]],
        ]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
        max_leaves=4,
    ),
)
RECORDINGS = [
    (PEERS / "scalable/runs/run-20261115T072250Z-demeter-lulcc-423922c5", "scalable", "tasks.jsonl"),
    (PEERS / "scalable/runs/run-20261115T072250Z-demeter-lulcc-423922c5", "scalable", "cache.jsonl"),
    (PEERS / "scalable/runs/run-20261115T072250Z-demeter-lulcc-423922c5", "scalable", "run.json"),
    (PEERS / "rhapsody", "rhapsody", "fixture.session.1794727371.telemetry.jsonl"),
    (PEERS / "modelops/telemetry/jobs/job-abc123", "modelops", "spans.jsonl"),
    (STORMLOG / "sink-rank0", "stormlog", "segment-000001.jsonl"),
    (PEERS / "dask", "dask", "stream.json"),
]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_value_of_any_shape_in_any_field_raises_nothing_but_a_clear_refusal(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    source, kind, name = data.draw(st.sampled_from(RECORDINGS))
    folder = tmp_path_factory.mktemp("odd")
    shutil.copytree(source, folder / "it")
    (folder / "runs").mkdir()
    file = folder / "it" / name
    lines = file.suffix == ".jsonl"
    found = (
        [json.loads(line) for line in file.read_text().splitlines()]
        if lines
        else json.loads(file.read_text())
    )
    record = found if isinstance(found, dict) else found[data.draw(st.integers(0, len(found) - 1))]
    for field in data.draw(st.lists(st.sampled_from(sorted(record)), min_size=1, max_size=3)):
        record[field] = data.draw(ODD)
    file.write_text("".join(json.dumps(one) + "\n" for one in found) if lines else json.dumps(found))
    try:
        made = adopt_path(
            file if kind == "dask" else folder / "it", folder / "runs", kind=kind, options=AdoptOptions()
        )
    except FlightlogError:
        assert list((folder / "runs").iterdir()) == []
    else:
        assert [one.made for one in made] == [True]
    shutil.rmtree(folder)
