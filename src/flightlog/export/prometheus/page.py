"""`/metrics` as an answer to any web server: bytes, and what they are."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


class MetricsPage:
    """The page of one collector; thread-safe if that is. `flightlog serve-metrics` and other servers show
    it.
    """

    def __init__(self, collector: Collector) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)

    def answer(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type, in the format that the header `Accept` asks for: text or
        OpenMetrics.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type
