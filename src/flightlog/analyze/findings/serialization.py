"""Moving data: transfer time where it was recorded, else large results."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Facts, Finding, cost_text, matters, plural, share_of
from flightlog.core.units import format_bytes

LARGE_BYTES, MUCH_BYTES = 10 << 20, 1 << 30
"""A result and a sum of results from which on moving them is worth a word."""

_RESULTS = """
SELECT task, count(*), sum(result_bytes) AS bytes FROM attempt_intervals
WHERE state = 'completed' AND result_bytes IS NOT NULL GROUP BY task ORDER BY bytes DESC, task LIMIT 1
"""


def serialization(facts: Facts) -> Iterable[Finding]:
    """Transfer time where spans tell it; else the task name with the largest results, its cost unknown."""
    row = facts.connection.execute(_RESULTS).fetchone()
    task, results, total = (row[0], int(row[1]), int(row[2])) if row is not None else ("", 0, 0)
    largest = f"{plural(results, 'result')} of {task} came to {format_bytes(total)}"
    evidence = {"task": task or None, "results": results, "result_bytes": total}
    try_ = "try returning less, writing large results to files, or working where the data is"
    lost = facts.shares.whole.transfer_s if facts.shares is not None else None
    if matters(facts, lost):
        assert lost is not None
        because = f", because {largest}" if total >= LARGE_BYTES else ""
        yield Finding(
            kind="serialization",
            seconds=lost,
            share=share_of(facts, lost),
            evidence=evidence,
            sentence=f"{cost_text(facts, lost)} went to moving and serializing data{because}; {try_}.",
            where=[task] if task else [],
        )
    elif lost is None and results and total >= MUCH_BYTES and total / results >= LARGE_BYTES:
        yield Finding(
            kind="serialization",
            seconds=None,
            share=None,
            evidence=evidence,
            where=[task],
            sentence=(
                f"An unknown part of this run went to moving results, because {largest}, "
                f"{format_bytes(total / results)} each; {try_}."
            ),
        )
