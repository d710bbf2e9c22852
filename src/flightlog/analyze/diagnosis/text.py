"""A failure text alone, to what it most likely is."""

from __future__ import annotations

from flightlog.analyze.diagnosis.base import Case, Diagnosis
from flightlog.analyze.diagnosis.reading import read_text
from flightlog.analyze.diagnosis.weighing import weigh


def diagnose_text(text: str, exception_type: str | None = None) -> Diagnosis:
    """What a log's end, a traceback or an error message most likely means; `unknown` where it does not tell.

    `exception_type` is the type of the exception (`ValueError`, `torch.cuda.OutOfMemoryError`) where it is
    known and the text does not show it. Never raises on any text; of a long one, its beginning and its end
    are read.
    """
    return weigh(Case(reading=read_text(text, exception_type)))
