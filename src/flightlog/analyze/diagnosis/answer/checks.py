"""Commands that show the evidence of a cause."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightlog.analyze.diagnosis.record.gathering import Gathered


def checks(found: Gathered, failure_class: str, ref: str, project: str) -> list[str]:
    """Commands that show the evidence, ready to be typed; `ref` names the run: its id, or else its path."""
    group, named = found.group, shlex.quote(ref)
    commands: list[str] = []
    if group.task is not None and failure_class in {"out_of_memory", "timeout", "time_limit"}:
        task, most = (
            _sql_text(group.task),
            "peak_rss_bytes" if failure_class == "out_of_memory" else "duration_s",
        )
        commands.append(
            _sql(
                "SELECT task, attempt, state, peak_rss_bytes, duration_s, worker FROM attempts "  # noqa: S608 - quoted
                f"WHERE task = {task} OR "
                f"starts_with(task, {_sql_text(group.task + '[')}) ORDER BY {most} DESC NULLS LAST LIMIT 10",
                named,
            )
        )
    if found.incident is not None and found.incident.losses:
        commands.append(
            _sql(
                "SELECT timestamp, worker, host, signal, exit_code, reason FROM workers WHERE event = "
                "'worker_lost'",
                named,
            )
        )
    if found.job is not None:
        commands.append(
            _sql(
                "SELECT job_id, state, reason, elapsed_s, walltime_s, max_rss_bytes FROM jobs WHERE event "
                "= 'job_accounted'",
                named,
            )
        )
    if failure_class == "gpu_out_of_memory":
        commands.append(f"flightlog devices {named}")
    if group.scope == "run" and group.recorded_in == "run.json" and failure_class == "cancelled":
        commands.append(f"flightlog report {named}")
    elif group.scope == "run" and group.recorded_in == "run.json" and found.incident is None:
        commands.append(
            _sql(
                "SELECT timestamp, scope, host, memory_used_bytes, memory_total_bytes, oom_kills FROM "
                "resources "
                "WHERE scope IN ('node', 'cgroup') ORDER BY timestamp DESC LIMIT 5",
                named,
            )
        )
    elif group.scope != "metric" and group.count:
        commands.append(f"flightlog report {named} --failures")
    if failure_class == "out_of_memory" and group.task is not None and found.asked.component is not None:
        elsewhere = f" --runs-dir {shlex.quote(ref.rpartition('/')[0])}" if "/" in ref else ""
        commands.append(
            f"flightlog advise --task {shlex.quote(group.task)} --project {shlex.quote(project)}{elsewhere}"
        )
    return commands


def _sql(query: str, named: str) -> str:
    plain = not any(character in query for character in '"$`\\!\n')
    quoted = f'"{query}"' if plain else shlex.quote(query)
    return f"flightlog sql {quoted} --run {named}"


def _sql_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
