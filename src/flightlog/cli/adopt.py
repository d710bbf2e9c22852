"""Imports what other tools recorded: makes it a run, or merges it into the runs it belongs to.

    flightlog adopt path/to/recording
    flightlog adopt trace.txt --project rnaseq
    flightlog adopt lines.jsonl --mapping mapping.yaml
    flightlog adopt --slurm 1234

The kind of a recording is recognized from its content; `--kind` names it where that fails:

| kind | what it is |
|---|---|
| `scalable` | a run directory of Scalable, or a folder of them |
| `rhapsody` | a telemetry checkpoint of RHAPSODY, or a folder of them |
| `stormlog` | a sink folder, export or out-of-memory bundle, of any version; sinks of one job are one run |
| `modelops` | a job folder of ModelOps, or a folder of them |
| `nextflow` | a trace file of Nextflow (`-with-trace`), readable or raw |
| `chrome` | a trace in Chrome's JSON, of browsers, Perfetto, PyTorch's profiler or VizTracer; gzip too |
| `dask` | a task stream of Dask saved as JSON, or the HTML of `performance_report` |
| `jsonl` | lines of JSON of any program, with a mapping file |
| `slurm` | Slurm's accounting, saved with `sacct --json` |

The result is an ordinary run that every command can read. The output lists what was kept, what was converted
and what was dropped, and warns about figures to be careful with. For example, where a tool's durations
include waiting, they are not called execution times: they become the metric `elapsed_s` of the tasks, reports
and comparisons show them as times with waiting, and `duration_s` stays unknown. The run records all of this,
and `flightlog report` shows the notes. The recording is never changed. Adopting it again finds the existing
run and changes nothing. Torn and foreign lines are skipped and counted. In a folder of recordings, one that
cannot be adopted is reported at the end; the others are adopted.

**Lines of JSON** need a mapping file, which says what each field means. Fields it does not name become tags:

```yaml
kind: task              # what a line is: task, span, metric or event
time: end               # ISO 8601, or a number
time_is: end            # start or end
time_unit: ms           # of numbers: s, ms, us or ns of Unix time
name: step              # a field, or a text behind an equals sign: "=train"
id: job.id              # dots go into objects
duration: ms            # execution alone; what includes waiting is `elapsed`
duration_unit: ms
status: is
failed: [error]         # what `status` says of lines that failed
error: why
worker: at
args: [seed]
metrics: [loss]
```

```json
{"end":1779249120500,"step":"fit","job":{"id":"a1"},"ms":350,"is":"ok","at":"n1","seed":1,"loss":0.5}
{"end":1779249121700,"step":"fit","job":{"id":"a2"},"ms":900,"is":"error","why":"diverged","at":"n2","seed":2}
```

Further names are `elapsed`, `queue`, `attempt`, `parent`, `error_type`, `cancelled`, `value` and `step` (of
metrics), `tags` and `project`.

**A task stream of Dask** is saved with

```python
json.dump(client.get_task_stream(), open("stream.json", "w"), default=str)
```

**Slurm's accounting** (`--slurm`, asked of `sacct`) knows what a program inside a job cannot: that it was
killed for its memory or at its time limit, that it was preempted, that a node failed; and for every job its
elapsed time, CPU time, peak memory, exit code and time in the queue. Where runs were recorded inside the job
(`flightlog run` or `flightlog.record` in its script, a session's workers), all this is merged into them;
other jobs become a run of their own, with a task and a worker per job or array element. The number of an
array stands for all its elements.

Tasks and workers that were in flight when the job ended get their end, with the reason. Ends that are
recorded stay as they are, and so does everything else: adopting adds lines, and adopting again adds none. A
run that was never closed is closed when all its jobs have ended. The complete accounting is in the table
`jobs`:

    flightlog sql "SELECT job_id, state, elapsed_s, max_rss_bytes FROM jobs WHERE event = 'job_accounted'"

Accounting from another machine goes through a file, saved there with

    sacct --json --duplicates --jobs 1234 > jobs.json

Slurm 21.08 and later can write it. Slurm 22.05 leaves exit codes out of it; `--slurm` asks for them by other
means, and from a file they are unknown. Jobs that have not ended are skipped and named. Memory is what Slurm
sampled: for jobs shorter than its interval it is unknown, never 0.
"""

from __future__ import annotations

from pathlib import Path

import typer

from flightlog.cli.options import AnyFormat, RunsDir, complete_run, option, writable_runs_folder
from flightlog.cli.output import json_text, put
from flightlog.cli.progress import progress
from flightlog.core.errors import UsageError
from flightlog.core.settings import expanded

DOING = "adopting"


def adopt(
    path: Path | None = typer.Argument(
        None, metavar="PATH", help="File or folder that another tool recorded.", show_default=False
    ),
    slurm: str | None = option("JOBID", "Import the accounting of these Slurm jobs, separated by commas."),
    slurm_file: Path | None = option("F", "Import accounting that was saved with sacct --json."),
    kind: str | None = option("K", "Format of PATH. Default: recognized from its content"),
    mapping: Path | None = option("F", "YAML file that says what the fields of plain JSONL mean."),
    project: str | None = option("P", "Project of the run. Default: as recorded"),
    into: str | None = option(
        "RUN",
        "Merge Slurm's accounting into this run. Default: the run that the job recorded",
        autocompletion=complete_run,
    ),
    output: AnyFormat = "text",
    runs_dir: RunsDir = None,
) -> None:
    """Import what another tool recorded, as a run.

    Example: flightlog adopt path/to/recording
    """
    if sum(one is not None for one in (path, slurm, slurm_file)) != 1:
        raise UsageError("name what to adopt: a PATH, --slurm JOBID, or --slurm-file F")
    from flightlog.adopt import adopt_path, kind_of_path
    from flightlog.adopt.run_maker import AdoptOptions
    from flightlog.adopt.slurm import SLURM, adopt_slurm, adopt_slurm_file

    options = AdoptOptions(project=project, mapping=expanded(mapping) if mapping is not None else None)
    if path is not None:
        path = expanded(path)
        if kind_of_path(path, kind, options) == SLURM:
            slurm_file, path = path, None
    folder = writable_runs_folder(runs_dir)
    if path is not None:
        if into is not None:
            raise UsageError("--into is for Slurm's accounting: other recordings become runs of their own")
        from flightlog.show.outcomes import adopted_text

        refused: list[str] = []
        with progress("adopting recording") as tell:
            adopted = adopt_path(path, folder, kind=kind, options=options, refused=refused, progress=tell)
        put(json_text(adopted) if output == "json" else adopted_text(adopted))
        if refused:
            more = f", and {len(refused) - 1:,} more" if len(refused) > 1 else ""
            raise UsageError(
                f"{len(refused):,} of {len(adopted) + len(refused):,} recordings could not be adopted: "
                f"{refused[0]}{more}"
            )
        return
    if kind not in (None, SLURM) or mapping is not None or project is not None:
        raise UsageError("--kind, --mapping and --project are for a PATH that is not Slurm's accounting")
    from flightlog.show.outcomes import adoption_text
    from flightlog.store.run import find_run

    target = None if into is None else find_run(into, runs_dir=folder)
    if slurm_file is not None:
        merged = adopt_slurm_file(expanded(slurm_file), folder, into=target)
    else:
        job_ids = [word.strip() for word in (slurm or "").split(",") if word.strip()]
        if not job_ids:
            raise UsageError("--slurm names no job; for example: --slurm 1234")
        merged = adopt_slurm(job_ids, folder, into=target)
    put(json_text(merged) if output == "json" else adoption_text(merged))
