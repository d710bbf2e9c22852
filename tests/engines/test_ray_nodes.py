"""Ray is asked for its nodes only while its head is there; how long it has not been is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flightlog.engines.ray.engine import Nodes

ALIVE = {"Alive": True, "Resources": {"CPU": 2.0}}
DEAD = {"Alive": False, "Resources": {}}


class FakeRay:
    """A cluster whose head is there or not, at a moment of the test's choice."""

    def __init__(self) -> None:
        self.there, self.now, self.asked = True, 0.0, 0
        self.told: list[Any] = []
        self.nodes_of = Nodes(self, self.told.append, probe=self.probe, clock=lambda: self.now)

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(gcs_address="10.0.0.1:6379")

    def probe(self, address: str) -> None:
        assert address == "10.0.0.1:6379"
        if not self.there:
            raise ConnectionRefusedError

    def nodes(self) -> list[dict[str, Any]]:
        self.asked += 1
        return [ALIVE, DEAD]


def test_nodes_that_live_are_told():
    ray = FakeRay()
    ray.nodes_of.look()
    assert (ray.told, ray.nodes_of.missing_s()) == ([[ALIVE]], 0.0)


def test_a_cluster_without_its_head_is_not_asked_and_missed_since_it_was_first_found_gone():
    ray = FakeRay()
    ray.there = False
    for ray.now in (5.0, 10.0, 15.0):
        ray.nodes_of.look()
    ray.now = 26.0
    assert (ray.asked, ray.told, ray.nodes_of.missing_s()) == (0, [], 21.0)


def test_a_head_that_is_back_is_not_missed_any_more():
    ray = FakeRay()
    ray.there = False
    ray.nodes_of.look()
    ray.there, ray.now = True, 19.0
    ray.nodes_of.look()
    assert (ray.told, ray.nodes_of.missing_s()) == ([[ALIVE]], 0.0)
