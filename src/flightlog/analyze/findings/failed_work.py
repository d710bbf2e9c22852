"""Failed work: attempts that failed, were retried or were cancelled."""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.findings.base import Facts, Finding, cost_text, matters, plural, share_of

_FAILED = """
SELECT task, count(*), count(*) FILTER (retried), count(*) FILTER (state = 'cancelled'),
    sum(stopped - began) AS ns
FROM attempt_intervals WHERE state IN ('failed', 'cancelled') AND began IS NOT NULL
GROUP BY task ORDER BY ns DESC, task
"""


def failed_work(facts: Facts) -> Iterable[Finding]:
    """Time in which workers were held by nothing but attempts that failed, were retried or cancelled."""
    if facts.shares is None or not matters(facts, facts.shares.whole.failed_s):
        return
    lost = facts.shares.whole.failed_s
    rows = facts.connection.execute(_FAILED).fetchall()
    attempts, retried, cancelled = (sum(row[n] for row in rows) for n in (1, 2, 3))
    causes = facts.summary.failures.by_cause
    cause = (causes[0].error_type or "", (causes[0].message or "").partition("\n")[0]) if causes else ("", "")
    said = ": ".join(part for part in cause if part)
    kinds = [
        f"{retried:,} of them retried" if retried else "",
        f"{cancelled:,} cancelled" if cancelled else "",
    ]
    told = ", ".join(kind for kind in kinds if kind)
    yield Finding(
        kind="failed_work",
        seconds=lost,
        share=share_of(facts, lost),
        sentence=(
            f"{cost_text(facts, lost)} went to {plural(attempts, 'attempt')} that did not "
            f"complete{f' ({told})' if told else ''}{f', because of {said[:100]}' if said else ''}; try "
            "`flightlog report --failures` for the causes."
        ),
        evidence={"attempts": attempts, "retried": retried, "cancelled": cancelled, "cause": said or None},
        where=[row[0] for row in rows[:3]],
    )
