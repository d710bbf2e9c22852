"""Scalable's names over Flightlog: change `scalable` to `flightlog.compat.scalable` in the import."""

from flightlog.compat.scalable import caching
from flightlog.compat.scalable.advising import ResourceAdvisor, ResourceRecommendation
from flightlog.compat.scalable.caching import *  # noqa: F403 - `cacheable`, and how arguments count
from flightlog.compat.scalable.client import ScalableClient
from flightlog.compat.scalable.session import ScalableSession

__all__ = ["ResourceAdvisor", "ResourceRecommendation", "ScalableClient", "ScalableSession"]
__all__ += caching.__all__
