"""Adopts what other tools recorded: merges it into the runs it belongs to, or makes a run of it.

    flightlog adopt --slurm 1234
    flightlog adopt --slurm 1234,1240_7 --into latest
    flightlog adopt --slurm-file jobs.json

**Slurm's accounting** (`--slurm`, asked of `sacct`) knows what a program inside a job cannot: that it was ended for its
memory or at its time limit, that it was preempted, that a node failed; and of every job its elapsed time, CPU time, largest
memory, exit code and time in the queue. Where runs were recorded inside the job (`flightlog run` or `flightlog.record` in
its script, a session's workers) all this is merged into them; jobs without one become a run of their own, with a task and
a worker a job or element of an array. The number of an array stands for all its elements.

Tasks and workers that were in flight when the job ended get their end, with the reason. Ends that are recorded stay as
they are, and so does everything else: adopting adds lines, and adopting again adds none. A run that nobody could close
any more is closed when all its jobs have ended. What the accounting says as a whole stands in the table `jobs`:

    flightlog sql "SELECT job_id, state, elapsed_s, max_rss_bytes FROM jobs WHERE event = 'job_accounted'"

Accounting from another machine goes through a file, saved there with

    sacct --json --duplicates --jobs 1234 > jobs.json

Slurm 21.08 and later can write it. Slurm 22.05 leaves exit codes out of it; `--slurm` asks for them by other means, and
from a file they are unknown. Jobs that have not ended are left for later, and said. Memory is what Slurm sampled: of jobs
shorter than its interval it is unknown, and never 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flightlog.cli.options import AnyFormat, Format, RunsDir, complete_run, writable_runs_folder
from flightlog.cli.output import put
from flightlog.errors import UsageError


def adopt(
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", metavar="JOBID", help="Accounting of these Slurm jobs, with commas between."),
    ] = None,
    slurm_file: Annotated[
        Path | None, typer.Option("--slurm-file", metavar="F", help="Accounting saved with sacct --json.")
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", help="Merge into this run. Default: where it belongs", autocompletion=complete_run
        ),
    ] = None,
    output: AnyFormat = Format.text,
    runs_dir: RunsDir = None,
) -> None:
    """Adopt what another tool recorded: Slurm's accounting of jobs.

    Example: flightlog adopt --slurm 1234
    """
    if (slurm is None) == (slurm_file is None):
        raise UsageError("say what to adopt: --slurm JOBID, or --slurm-file F")
    from flightlog.adopt.slurm import adopt_slurm, adopt_slurm_file
    from flightlog.show.adoption import adoption_text
    from flightlog.store.run import find_run

    folder = writable_runs_folder(runs_dir)
    target = None if into is None else find_run(into, runs_dir=folder)
    if slurm_file is not None:
        merged = adopt_slurm_file(slurm_file.expanduser(), folder, into=target)
    else:
        job_ids = [word.strip() for word in (slurm or "").split(",") if word.strip()]
        if not job_ids:
            raise UsageError("--slurm names no job; say for example --slurm 1234")
        merged = adopt_slurm(job_ids, folder, into=target)
    if output is Format.json:
        import msgspec

        put(msgspec.json.format(msgspec.json.encode(merged), indent=2).decode() + "\n")
    else:
        put(adoption_text(merged))
