"""What is run inside Dragon: a module for the pytest that `test_dragon_engine.py` has Dragon start."""

from __future__ import annotations

import sys

import pytest

from flightlog.engines.dragon.engine import DragonEngine
from flightlog.testing.engines import ProcessEngineContract


class TestDragon(ProcessEngineContract):
    def make_engine(self, workers):
        return DragonEngine(max_workers=workers)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
