"""ModelOps' telemetry names over Flightlog: change `modelops` to `flightlog.compat.modelops` in the
import.
"""

from flightlog.compat.modelops import telemetry
from flightlog.compat.modelops.telemetry import *  # noqa: F403 - all names of the package are names here

__all__: list[str] = []
__all__ += telemetry.__all__
