"""Advice as a JSON document: the words of each recommendation beside its numbers, and its schema."""

from __future__ import annotations

from typing import Any

import msgspec

from flightlog.analyze.advice.advise import Advised
from flightlog.analyze.advice.resources import Recommendation
from flightlog.analyze.advice.words import gain, notes, reason


class WordedRecommendation(Recommendation, frozen=True, kw_only=True):
    """A recommendation, and how it is said."""

    change: bool
    """Whether what is asked for is to be changed."""
    reason: str
    potential_savings: str | None
    """In words; null where nothing is saved, or nobody knows."""
    notes: list[str]


class AdviceDocument(Advised, frozen=True, kw_only=True):
    """What `flightlog advise --format json` writes."""

    recommendations: list[WordedRecommendation]  # type: ignore[assignment]  # a list is read here, never added to


def advice_document(advised: Advised) -> AdviceDocument:
    """The advice with its words."""
    worded = [
        WordedRecommendation(
            **msgspec.structs.asdict(one),
            change=one.is_to_change,
            reason=reason(one),
            potential_savings=gain(one),
            notes=notes(one),
        )
        for one in advised.recommendations
    ]
    return AdviceDocument(**{**msgspec.structs.asdict(advised), "recommendations": worded})


def advised_json(advised: Advised) -> bytes:
    """As JSON, indented, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(advice_document(advised)), indent=2) + b"\n"


def advice_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON of `flightlog advise`."""
    schema = msgspec.json.schema(AdviceDocument)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Flightlog advice", **schema}
