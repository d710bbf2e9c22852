"""How often `diagnose` names the class of a failure text, over texts with labels.

    python -m bench.diagnose FILE.jsonl [FILE.jsonl …] [--counts-only]

A line holds `text`, `exception_type` or null, `label`, `also` (classes that are right, too) and `source`.
Right is the label or one of `also`. Confidently wrong is another class with a confidence of one half or more.
The last table is the calibration: of answers with such a confidence, how many were right.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from flightlog.analyze.diagnosis.score import diagnose_text

SURE = 0.5
BANDS = (0.0, 0.5, 0.7, 0.85, 0.95, 1.01)


class Answer(NamedTuple):
    case: dict
    said: str
    confidence: float
    evidence: list[str]

    @property
    def right(self) -> bool:
        return self.said == self.case["label"] or self.said in (self.case.get("also") or ())

    @property
    def confidently_wrong(self) -> bool:
        return not self.right and self.confidence >= SURE


def answers(paths: Iterable[str]) -> list[Answer]:
    """Every case of the files, answered."""
    found = []
    for path in paths:
        for line in Path(path).read_text("utf-8").splitlines():
            if line.strip():
                case = json.loads(line)
                told = diagnose_text(case["text"], case.get("exception_type"))
                found.append(Answer(case, told.failure_class, told.confidence, told.evidence))
    return found


def row(name: str, given: Sequence[Answer]) -> str:
    right, wrong = sum(one.right for one in given), sum(one.confidently_wrong for one in given)
    share = f"{right / len(given):6.1%}" if given else "     -"
    return (
        f"{name:<22} {len(given):5d}   right {right:4d} {share}   confidently wrong {wrong:3d} "
        f"{wrong / max(len(given), 1):6.1%}"
    )


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 1 if there is nothing to measure."""
    given = answers(one for one in arguments if not one.startswith("--"))
    if not given:
        print(__doc__)
        return 1
    print(row("all", given))
    kinds, classes = defaultdict(list), defaultdict(list)
    for one in given:
        kinds[str(one.case.get("source") or "?").partition(":")[0]].append(one)
        classes[one.case["label"]].append(one)
    for name in sorted(kinds):
        print(row(f"  {name}", kinds[name]))
    print()
    for name in sorted(classes):
        missed = Counter(one.said for one in classes[name] if not one.right)
        print(row(name, classes[name]), *(f" {n} {said}" for said, n in missed.most_common()))
    print("\nconfidence     answers   right")
    for low, high in pairwise(BANDS):
        band = [one for one in given if low <= one.confidence < high and one.said != "unknown"]
        if band:
            print(
                f"{low:.2f} to {min(high, 1):.2f}  {len(band):6d}   "
                f"{sum(one.right for one in band) / len(band):6.1%}"
            )
    if "--counts-only" not in arguments:
        for one in given:
            if not one.right:
                print(
                    f"\n{one.case.get('id')}: {one.case['label']} (also {one.case.get('also')}), said "
                    f"{one.said} {one.confidence}"
                )
                print(
                    f"  because: {one.evidence[:3]}\n  type: {one.case.get('exception_type')}\n  | "
                    + one.case["text"].replace("\n", "\n  | ")
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
