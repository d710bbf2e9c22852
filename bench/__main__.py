"""`make bench`: every budget with what was measured, worst news not hidden."""

from __future__ import annotations

import os
import platform
import statistics
import sys

from bench import (
    dask,
    devices,
    ending,
    every_task,
    export,
    followers,
    gpu,
    history,
    look,
    processes,
    report,
    sampling,
    spans,
    starting,
    tables,
    tasks,
    ui,
    ui_costs,
)

LIMIT_SPAN, LIMIT_OFF, LIMIT_IMPORT_S, LIMIT_VERSION_S = 1 / 12, 2.5, 0.050, 0.200
LIMIT_EVENTS_PER_S, LIMIT_SAMPLING_PERCENT = 1_000_000, 1.0
LIMIT_HISTORY_S = 2.0
LIMIT_BEGIN_S = 1.0
LIMIT_END_S = 0.3
LIMIT_LIST_S, LIMIT_CLOSE_S = 0.5, 0.050
LIMIT_LOOK, LIMIT_VIEWED, LIMIT_LATE_S = 1.25, 0.95, 2.0
LIMIT_REFRESH_MS = 50.0
LIMIT_FOLLOWED = 1.1
LIMIT_DEVICE_EVENTS_PER_S, LIMIT_DEVICE_PEAK_BYTES = 500_000, 400e6


def say(what: str, measured: str, budget: str, holds: bool) -> bool:
    """One line of the table; whether the budget holds."""
    print(f"{'ok  ' if holds else 'MISS'}  {what:<58} {measured:<44} budget {budget}", flush=True)
    return holds


def note(what: str, measured: str) -> None:
    """A line of the table that no budget is about."""
    print(f"      {what:<58} {measured}", flush=True)


def main() -> int:
    """Measure everything; 1 if a budget is missed."""
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; medians of interleaved rounds\n")
    held = []

    found = spans.durable()
    for peer, what in (
        ("own", "writing its own JSON"),
        ("lean", "writing the leanest JSON we could make it write"),
    ):
        ratio = found["ours"] / found[peer]
        measured = f"{found['ours']:,.0f} ns to {found[peer]:,.0f} ns: 1/{1 / ratio:.1f}"
        if peer == "own":
            held.append(
                say(f"durable span to the OpenTelemetry SDK's, {what}", measured, "1/12", ratio <= LIMIT_SPAN)
            )
        else:
            note(f"  and to the same, {what}", measured)

    found = spans.disabled()
    for name, floor in (("off", "nullcontext"), ("idle", "nullcontext beside idle")):
        ratio = found[name] / found[floor]
        measured = f"{found[name]:,.0f} ns to {found[floor]:,.0f} ns: {ratio:.2f} x"
        what = {"off": "span with recording switched off", "idle": "span while no run is active"}[name]
        held.append(say(f"{what} to a reused nullcontext", measured, "2.5 x", ratio <= LIMIT_OFF))

    cases = {
        "one by one": processes.one_by_one,
        "in batches of 64": processes.in_batches,
        "floor": processes.bare,
    }
    runs = {name: [] for name in cases}
    for _ in range(5):
        for name, work in cases.items():
            runs[name].append(processes.together(work))
    rate = {name: statistics.median(run["events_per_s"] for run in done) for name, done in runs.items()}
    for name in ("one by one", "in batches of 64"):
        measured = f"{rate[name]:,.0f} events/s, {rate[name] / rate['floor']:.2f} of the floor"
        what = f"{processes.PROCESSES} processes writing one run, {name}"
        held.append(say(what, measured, f"{LIMIT_EVENTS_PER_S:,}/s", rate[name] >= LIMIT_EVENTS_PER_S))
    every = [run for done in runs.values() for run in done]
    intact = all(
        run["found"] == run["recorded"] and not run["lost"] + run["torn"] + run["doubled"] for run in every
    )
    total = sum(run["recorded"] for run in every)
    held.append(
        say(
            f"  of {total:,.0f} events, lost, torn or doubled",
            "none" if intact else str(every),
            "none",
            intact,
        )
    )

    found = starting.starting()
    more = found["import flightlog"] - found["import msgspec, psutil"]
    held.append(
        say(
            "import flightlog, beside msgspec and psutil",
            f"{more * 1e3:.1f} ms",
            "50 ms",
            more < LIMIT_IMPORT_S,
        )
    )
    heavy = starting.heavy_modules()
    held.append(say("  heavy modules imported with it", ", ".join(heavy) or "none", "none", not heavy))
    more = found["flightlog --version"] - found["python"]
    held.append(
        say(
            "flightlog --version, beside a bare Python",
            f"{more * 1e3:.1f} ms",
            "200 ms",
            more < LIMIT_VERSION_S,
        )
    )

    for threads, (took, again) in ending.begin_medians().items():
        what = f"begin of a run beside {threads} busy threads (of a second one: {again:.3f} s)"
        held.append(say(what, f"{took:.3f} s", "1 s", took <= LIMIT_BEGIN_S))

    for (threads, events), took in ending.medians().items():
        what = f"end of a run of {events:,} events beside {threads} busy threads"
        held.append(say(what, f"{took:.3f} s", "0.3 s", took <= LIMIT_END_S))

    for what, percent in sampling.measure().items():
        if what.endswith("percent_of_core"):
            held.append(
                say(
                    f"sampling: {what}", f"{percent:.3f} %", "1 % of a core", percent < LIMIT_SAMPLING_PERCENT
                )
            )
    found = tasks.measure()
    more, each = found["more_wall_percent"], found["recording_us"]
    held.append(
        say(
            "10,000 tasks of 5 ms through a session to a bare executor",
            f"{more:+.1f} % wall time",
            "5 %",
            more <= 5,
        )
    )
    held.append(say("recording a task that does nothing", f"{each:.0f} us", "60 us", each <= 60))
    note("  and in CPU time, over all processes", f"{found['recording_cpu_us']:.0f} us")
    for processes_, kind in ((True, "processes"), (False, "threads")):
        missing = every_task.check(every_task.RUNS, processes_)
        what = f"runs of {every_task.TASKS:,} finished tasks with as many completed, {kind}"
        measured = f"{every_task.RUNS - len(missing)} of {every_task.RUNS}"
        held.append(say(what, measured, f"{every_task.RUNS} of {every_task.RUNS}", not missing))
    found = dask.measure()
    more = found["more_wall_percent"]
    held.append(
        say(
            f"{dask.TASKS:,} tasks of a Dask client that do nothing, watched to bare",
            f"{more:+.1f} % wall time ({found['more_cpu_percent']:+.1f} % CPU)",
            f"{dask.BUDGET_PERCENT:.0f} %",
            more <= dask.BUDGET_PERCENT,
        )
    )
    for module, what in (
        (tables, f"aggregating {tables.TASKS:,} tasks by SQL to bare DuckDB on the same lines"),
        (report, f"report of {report.TASKS:,} tasks to bare DuckDB counting the same"),
    ):
        found = module.measure()
        bare, lines, stored = (found[f"{way}_seconds"] for way in ("bare", "lines", "parquet"))
        allowed = 1.25 * bare + 1.0
        held.append(say(what, f"{lines:.2f} s to {bare:.2f} s", "1.25 x and 1 s", lines <= allowed))
        allowed = 1.5 * module.TASKS / 1_000_000
        held.append(say("  the same from Parquet", f"{stored:.2f} s", "1.5 s a million", stored <= allowed))
        memory = found["lines_megabytes"]
        held.append(say("  peak memory", f"{memory:,.0f} MB", "500 MB", memory < 500))
    note("  the same as compacting has kept it", f"{found['kept_seconds']:.2f} s")
    seconds, memory = found["compact_seconds"], found["compact_megabytes"]
    allowed = 12 * report.TASKS / 1_000_000
    held.append(say("  compacting it", f"{seconds:.2f} s", "12 s a million", seconds <= allowed))
    held.append(say("  peak memory", f"{memory:,.0f} MB", "600 MB", memory < 600))
    seconds = report.listing()
    held.append(say("listing 5,000 runs", f"{seconds:.2f} s", "0.5 s", seconds <= LIMIT_LIST_S))
    seconds = report.closing()
    what = "CPU time of closing a run of 10,000 tasks, in the program"
    held.append(say(what, f"{seconds * 1e3:.0f} ms", "50 ms", seconds <= LIMIT_CLOSE_S))
    found = export.measure()
    for way, to in (("perfetto", "Perfetto"), ("parquet", "Parquet")):
        seconds, bare = found[f"{way}_seconds"], found["bare_seconds"]
        what = f"exporting {export.TASKS:,} tasks to {to}, to reading the lines bare"
        note(what, f"{seconds:.1f} s to {bare:.1f} s: {seconds / bare:.1f} x")
        memory = found[f"{way}_megabytes"]
        budget = f"{export.LIMIT_MEGABYTES} MB"
        held.append(say("  peak memory", f"{memory:,.0f} MB", budget, memory < export.LIMIT_MEGABYTES))
    found = followers.measure()
    ratio, what = (
        found["followed"] / found["alone"],
        f"a metric of a run with {followers.FOLLOWERS} followers, to none",
    )
    shown = f"{ratio:.2f}, {found['followed']:.2f} µs of CPU time"
    held.append(say(what, shown, f"{LIMIT_FOLLOWED}", ratio <= LIMIT_FOLLOWED))

    found = look.measure()
    ratio, memory = found["cpu_seconds_ratio"], found["look_megabytes"]
    what = f"report of {look.TASKS:,} tasks with all that is drawn, to without"
    held.append(say(what, f"{ratio:.2f} of the CPU time", f"{LIMIT_LOOK}", ratio <= LIMIT_LOOK))
    held.append(say("  peak memory", f"{memory:,.0f} MB", "600 MB", memory < 600))
    found = ui.measure()
    what = f"speed of a recorder with {ui.VIEWERS} viewers, to without"
    held.append(say(what, f"{found['ratio']:.2f}", f"{LIMIT_VIEWED}", found["ratio"] >= LIMIT_VIEWED))
    late = found["latency_s"]
    held.append(
        say(
            "  from an event to a viewer",
            f"{late:.2f} s, {found['latest_s']:.2f} s at most",
            "2 s",
            late < LIMIT_LATE_S,
        )
    )
    found = ui_costs.refresh()
    cost = found["refresh_cpu_ms"]
    held.append(
        say(
            "a state of a run of 100,000 tasks that goes on, CPU time",
            f"{cost:.0f} ms, {found['first_reading_cpu_s']:.1f} s at first",
            "50 ms",
            cost < LIMIT_REFRESH_MS,
        )
    )
    for what, (seconds, _) in history.measure().items():
        if what.endswith("first call"):
            note(f"{history.RUNS:,} runs: {what}", f"{seconds:.2f} s")
        else:
            held.append(
                say(f"{history.RUNS:,} runs: {what}", f"{seconds:.2f} s", "2 s", seconds < LIMIT_HISTORY_S)
            )
    found = devices.measure()
    rate, peak = found["iterated_per_s"], found["iterated_peak_bytes"]
    held.append(
        say(
            f"loading {devices.EVENTS:,} device events, each validated",
            f"{rate:,.0f}/s, {rate / found['msgspec_per_s']:.2f} of bare msgspec, "
            f"{rate / found['json_per_s']:.1f} x json",
            f"{LIMIT_DEVICE_EVENTS_PER_S:,}/s",
            rate >= LIMIT_DEVICE_EVENTS_PER_S,
        )
    )
    held.append(say("  peak memory", f"{peak / 1e6:.0f} MB", "400 MB", peak < LIMIT_DEVICE_PEAK_BYTES))
    note("  and as one list", f"{found['list_per_s']:,.0f}/s, {found['list_peak_bytes'] / 1e6:,.0f} MB")
    on_gpu = gpu.measure()
    if on_gpu is not None:
        percent = on_gpu["sampling_one_gpu_percent_of_core"]
        held.append(
            say(
                "sampling one GPU at 100 ms",
                f"{percent:.3f} %",
                "1 % of a core",
                percent < LIMIT_SAMPLING_PERCENT,
            )
        )
    print(f"\n{sum(held)} of {len(held)} budgets hold")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
