"""Every event, declared once: encoder, decoder, columns, JSON Schema and reference page follow from it."""

from flightlog.events import declarations
from flightlog.events.base import SCHEMA_VERSION, Event, kind_of, kinds, streams
from flightlog.events.declarations import *  # noqa: F403 - its `__all__` says what
from flightlog.events.devices import DeviceMemory

__all__ = ["SCHEMA_VERSION", "DeviceMemory", "Event", "kind_of", "kinds", "streams"]
__all__ += declarations.__all__
