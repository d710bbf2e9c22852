"""Workers that were up with nothing to do: at the ends of batches, beside the program, or never used at
all.
"""

from __future__ import annotations

from collections.abc import Iterable

from flightlog.analyze.distribution import exact_sum
from flightlog.analyze.findings.base import Facts, Finding, cost_text, matters, plural, share_of
from flightlog.analyze.findings.program_spans import ProgramSpans, program_spans
from flightlog.units import format_duration

_UNUSED = """
SELECT DISTINCT worker FROM ups
WHERE worker NOT IN (SELECT worker FROM held WHERE worker IS NOT NULL AND began IS NOT NULL) ORDER BY worker
"""


def idle_workers(facts: Facts) -> Iterable[Finding]:
    """Idle time behind tasks of ordinary length, and idle time in which no task ran anywhere."""
    if facts.shares is None or facts.shares.basis != "workers":
        return
    unused = [name for (name,) in facts.connection.execute(_UNUSED).fetchall()]
    ordinary = [one for one in facts.behind if not one.is_straggler]
    ends = exact_sum(one.idle_s for one in ordinary)
    if matters(facts, ends):
        many = f" ({plural(len(unused), 'worker')} never had any)" if unused else ""
        yield Finding(
            kind="idle_workers",
            seconds=ends,
            share=share_of(facts, ends),
            sentence=(
                f"{cost_text(facts, ends)} went to workers with nothing left to do{many} while others "
                "finished tasks of ordinary length, because there was too little to share out at the end "
                f"of {plural(len(ordinary), 'batch', 'batches')}; try smaller tasks or fewer workers."
            ),
            evidence={
                "batches": len(ordinary),
                "unused_workers": len(unused),
                "workers": facts.shares.workers,
            },
            where=unused[:3] or [one.task for one in ordinary[:1]],
        )
    alone = facts.shares.whole.idle_alone_s
    if matters(facts, alone) and not _is_notebook(facts):
        stretches = {
            part.name: part.seconds
            for part in (
                facts.critical.parts if facts.critical is not None and facts.critical.of == "tasks" else []
            )
            if part.kind == "program"
        }
        told = ", ".join(f"{format_duration(lasted)} {name}" for name, lasted in stretches.items())
        inside = f" ({told})" if told else ""
        known = program_spans(facts)
        spans = _named(known)
        if facts.summary.tasks.queue_s.max:
            sentence = (
                f"went to workers waiting for the program, because no task ran or was queued{inside}"
                f"{f', and the program was in {spans}' if spans else ''}; try submitting the"
                " next tasks before gathering, or starting workers later and ending them sooner."
            )
        else:  # tasks that never waited are stretches of the program itself, and so are their workers
            sentence = (
                f"went to the program outside of its tasks{inside}{f', in {spans}' if spans else ''};"
                f" try {_advice(known)}."
            )
        yield Finding(
            kind="program_alone",
            seconds=alone,
            share=share_of(facts, alone),
            sentence=f"{cost_text(facts, alone)} {sentence}",
            evidence={"program_s": stretches, "spans_s": known.told},
            where=list(stretches),
        )


def _named(known: ProgramSpans) -> str:
    """`fit (3.0s), read (1.0s)`; how many names there are where none stands out; nothing where there is
    little in them.
    """
    if known.told:
        return ", ".join(
            f"{_called(name)} ({format_duration(lasted)})" for name, lasted in known.told.items()
        )
    many = f"spans of {plural(known.names, 'name')}, none of them long"
    return many if known.known_s > known.unknown_s else ""


def _advice(known: ProgramSpans) -> str:
    """For the largest part: that of the first span, of all spans where none stands out, or of what is not
    known.
    """
    if known.unknown_s >= max(known.told.values(), default=known.known_s):
        return "spans in the program, to see what it did"
    if not known.told:
        return "fewer or shorter spans"
    first = _called(next(iter(known.told)))
    if known.around_tasks:
        return f"spans inside of {first}, to see what the program did there"
    return f"making {first} shorter"


def _called(name: str) -> str:
    """A name that is not empty, and in which nobody finds the `; try ` that advice begins with."""
    return name.replace("; try ", ", try ") if name.strip() else "a span without a name"


def _is_notebook(facts: Facts) -> bool:
    """Whether the tasks are the cells of a notebook: between them a person reads and writes, and no program
    runs.
    """
    run = facts.summary.run
    return run.tags.get("notebook") == run.project
