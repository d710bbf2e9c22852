"""Predicts how long a task will take and how much memory it will need, from the runs recorded so far.

    flightlog predict simulate n=2000 method=rk4
    flightlog predict simulate n=2000 --host node-7 --format json
    flightlog predict --plan --target cluster      # wall time, cost and memory of a plan, before it runs
    flightlog predict --plan --calls calls.jsonl --workers 64
    flightlog predict --evaluate                   # how good the predictions were on later runs
    flightlog predict --train                      # train the model now, and show what it learnt

Each prediction is an expected value (the median) and an interval (p5 to p95). It names
the attempts that it comes from, the method, and what to keep in mind: little history, arguments beyond those
seen, attempts that were left out. Arguments are given as `name=value`; numbers and JSON are read as such,
everything else as text.

Two methods compete for each task, on runs that neither has seen, and the better one is used. The plain one
takes the quantiles of the name's recent attempts. The other is gradient boosting of quantiles over the
arguments, the sizes of inputs, host and component, with intervals that are moved and widened by what the
newest runs show (conformal prediction); it needs scikit-learn (`pip install 'flightlog[ml]'`). Without it the
plain one is used, and a note says so.

The newest 50 runs of the project count, and 100,000 attempts of them. Attempts that were killed at their
memory limit or ended at their time limit count as more than that limit; those that failed or were cancelled
do not count.

The model is kept beside the runs, as a hidden JSON file that nothing executes. It is trained again when newer
runs hold more than a fifth of its tasks, when there are ten of them, and when it is damaged or was made by
another version.

`--plan` takes the manifest's target and the calls of the project's last run, or those of a file with one JSON
object per line (`{"task": "simulate", "args": {"n": 100}}`), and simulates them on the plan's workers a few
hundred times, with durations drawn from their predictions. The time of that run outside of its tasks is
added.

`--evaluate` trains on earlier runs and tests on the newest three tenths. `Error` is the median of how far the
expected value was off, `Loss` the pinball loss of low, expected and high in logarithms, `In interval` should
be near 90%, `Width` is the high end over the low end; `by name` is the plain method. More in
[predictions](../predict.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flightlog.cli import options
from flightlog.cli.options import flag, option
from flightlog.cli.output import json_text, put, put_result, text_options
from flightlog.core.errors import UsageError

if TYPE_CHECKING:
    from flightlog.session.forecast import Workload

DOING = "learning from earlier runs"


def predict(
    task: str | None = typer.Argument(None, metavar="TASK", help="Name of the task.", show_default=False),
    arguments: list[str] | None = typer.Argument(
        None, metavar="NAME=VALUE...", help="Arguments of the task.", show_default=False
    ),
    train: bool = flag("--train", "Train the model again, even if it is up to date."),
    evaluate: bool = flag(
        "--evaluate", "Compare predictions with later runs, and show how accurate they are."
    ),
    plan: bool = flag("--plan", "Predict wall time, cost and memory of a plan."),
    manifest: Path | None = options.manifest_option("--plan"),
    target: options.TargetName = None,
    calls: Path | None = option(
        "F", "With --plan: file of calls, one JSON object per line. Default: the calls of the last run"
    ),
    workers: int | None = option("N", "With --plan: number of workers.", min=1),
    host: str | None = option("H", "Host on which the task would run."),
    project: str | None = option("P", "Only runs of this project. Default: the project of the latest run"),
    format_: options.AnyFormat = "text",
    runs_dir: options.RunsDir = None,
) -> None:
    """Predict how long a task takes and how much memory it needs.

    Example: flightlog predict simulate n=2000
    """
    if plan + evaluate + (task is not None) > 1:
        raise UsageError("give one of TASK, --plan and --evaluate")
    if not plan:
        of_plan = {"--calls": calls, "--workers": workers, "--target": target, "--manifest": manifest}
        options.refuse_alone(of_plan, "goes with --plan")
    if plan and project is not None:
        raise UsageError("--project goes without --plan: the manifest names the project")
    if host is not None and task is None:
        raise UsageError("--host goes with a TASK")
    folder = options.readable_runs_folder(runs_dir)
    from flightlog.analyze.predict.predict import open_model
    from flightlog.show import plan as show

    if plan:
        from flightlog.session.forecast import calls_of_file, forecast
        from flightlog.session.manifest import load_manifest, pick_target
        from flightlog.session.plan import make_plan, read_history

        with options.problems_noted():
            found = load_manifest(manifest)
            chosen = pick_target(found, target)
            name = found.resolved(os.environ, chosen, raw=True).project.name
            work = calls_of_file(calls) if calls is not None else None
            model = open_model(folder, name, train_anew=train).model
            made = make_plan(found, chosen, os.environ, read_history(folder, name))
            options.note_unset(found, chosen)
            expected = forecast(made, model, work or _last_calls(folder, name), workers=workers)
        put_result(expected, format_, show.forecast_text)
    elif evaluate:
        put_result(_evaluated(folder, project), format_, show.evaluation_text)
    elif task is not None:
        from flightlog.analyze.predict.predict import predict as predicted

        args = read_arguments(arguments or [])
        answer = predicted(task, args, runs_dir=folder, project=project, host=host, train_anew=train)
        put_result(answer, format_, show.prediction_text)
    elif train:
        put(_trained(folder, project, format_))
    else:
        raise UsageError(
            "name a task, as in `flightlog predict simulate n=2000`, or give --plan, --evaluate or --train"
        )


def read_arguments(words: list[str]) -> dict[str, Any]:
    """Arguments from `name=value`: JSON where it is JSON, a text otherwise."""
    import msgspec

    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{word!r} is not an argument: write name=value, as in n=2000")
        if name in found:
            raise UsageError(f"{name} is given twice, the second time as {word!r}")
        try:
            found[name] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            found[name] = {"True": True, "False": False, "None": None}.get(text, text)
    return found


def _trained(folder: Path, project: str | None, format_: options.Format) -> str:
    from flightlog.analyze.predict.predict import open_model
    from flightlog.show.plan import model_text

    opened = open_model(folder, project, train_anew=True)
    model = opened.model
    if format_ == "json":
        keys = ("format", "flightlog", "sklearn", "project", "trained_at", "runs", "attempts")
        about = {key: getattr(model, key) for key in keys}
        methods = {
            quantity: {name: of.method for name, of in model.quantity(quantity).names.items()}
            for quantity in ("duration_s", "peak_memory_bytes")
        }
        return json_text({**about, "methods": methods, "notes": opened.notes})
    return model_text(model, opened.why, **text_options())


def _evaluated(folder: Path, project: str | None) -> Any:
    from flightlog.analyze.history.attempts import read_past
    from flightlog.analyze.predict.predict import evaluate

    past = read_past(folder, project=project)
    if not past.runs:
        whose = f" of project {project!r}" if project else ""
        raise UsageError(f"there are no runs{whose} in {folder} to evaluate with: record some first")
    return evaluate(past)


def _last_calls(folder: Path, project: str) -> Workload:
    """The calls of the newest run of a project that has any."""
    from flightlog.session.forecast import calls_of_run
    from flightlog.store.earlier_runs import select_runs
    from flightlog.store.run import Run

    works = (calls_of_run(Run(one.entry.path)) for one in select_runs(folder, project=project).ended)
    if work := next((one for one in works if one.calls), None):
        return work
    raise UsageError(
        f"no run of project {project!r} in {folder} has any tasks: name a file of calls with --calls"
    )
