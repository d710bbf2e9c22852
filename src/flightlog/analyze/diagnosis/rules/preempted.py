"""The machine was taken back for somebody else, by a scheduler or a cloud."""

from __future__ import annotations

from flightlog.analyze.diagnosis.matchers import Clues, job_state, named, raised, reports, says

rule = Clues(
    job_state("PREEMPTED", "TERM_PREEMPT", "REVOKED", "EVICTED"),
    reports(
        6,
        r"DUE TO PREEMPTION|\bPREEMPTED\b|TERM_PREEMPT|\bPreempted\b|\bPREEMPT(?:ION|ING)?\b",
        "DUE TO JOB REQUEUE|JOB REQUEUED",
        r"Host EC2 \(instance i-\w+\) terminated|BidEvictedEvent|instance-action|TerminationNotice",
        r"compute\.instances\.preempted|SpotInterruption|SpotInstanceTermination|Spot VM preemption",
    ),
    says(
        5.5,
        r"\bspot (?:instance |vm |node |capacity )?.{0,40}(?:interrupt|reclaim|terminat|evict|preempt)",
        r"\b(?:interrupt|reclaim|terminat|evict|preempt)\w* .{0,40}\bspot\b",
    ),
    says(
        4.5,
        r"\b(?:was|been|being|got|is|were|will be) (?:preempted|reclaimed|pre-empted)|\bpreempted\b",
        r"\bpre-empted\b|\bpreemption\b(?! (?:is )?disabled)|preemptible .{0,40}(?:terminat|stop|shut)",
        "preempt(?:ing|s) (?:job|pod|task|this)|preemption notice",
    ),
    says(
        2.5,
        r"\b(?:pod|job|task|container|instance|vm|node)\b.{0,60}\b(?:was |been |has been |were )?evicted",
        r"\bevict(?:ed|ing)\b.{0,60}\b(?:pod|job|node)|shadow exception|graceful node shutdown",
        "node is shutting down",
        unless="low on resource|ephemeral|memory|disk|lustre|cache",
    ),
    reports(5, r"PreemptionBy\w*Scheduler|\bDisruptionTarget\b|EvictionBy\w*API|\bpreempted_\w+ ?[=:]"),
    reports(
        3.5,
        r"\bdrain(?:ed|ing)? (?:the )?node",
        "node (?:is |was )?(?:being )?drain(?:ed|ing)",
        unless="drain(?:ed|ing)? .{0,40}(?:queue|buffer)",
    ),
    says(
        3.5,
        "higher[- ]priority (?:job|task|pod|workload)s?|(?:job|task|pod"
        "|workload)s? of (?:a )?higher priority",
        "maintenance event|scheduled maintenance|spot price",
        "capacity (?:was )?(?:reclaimed|reclaim)|two-minute (?:warning|notice)|interruption notice",
        "termination notice",
    ),
    raised(
        5.5,
        "PreemptedError PreemptionError SpotInterruptionError NodePreemptedError JobPreempted",
        "PreemptionException",
    ),
    named(4.5, "Preempt|Evict|SpotInterrupt|Reclaim"),
    suggest=[
        "Nothing is wrong with the code: submit again, or let the scheduler do so (`#SBATCH --requeue`).",
        "Write checkpoints often enough that little is lost, and start from the last one.",
        "If it must not be interrupted, use a queue, a quality of service or an instance type that is not "
        "preempted.",
    ],
)
