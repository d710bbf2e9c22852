"""Scalable's names over Flightlog: change `scalable` to `flightlog.compat.scalable` in the import."""

from flightlog.compat.scalable.advising import ResourceAdvisor, ResourceRecommendation
from flightlog.compat.scalable.caching import (
    DirType,
    FileType,
    GenericType,
    ObjectType,
    UtilityType,
    ValueType,
    cacheable,
)
from flightlog.compat.scalable.client import ScalableClient
from flightlog.compat.scalable.session import ScalableSession

__all__ = [
    "DirType",
    "FileType",
    "GenericType",
    "ObjectType",
    "ResourceAdvisor",
    "ResourceRecommendation",
    "ScalableClient",
    "ScalableSession",
    "UtilityType",
    "ValueType",
    "cacheable",
]
