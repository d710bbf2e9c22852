"""`find_exporter` and `exporter_names`, under the address that programs import them from."""

from flightlog.export.base import exporter_names, extras_of, find_exporter

__all__ = ["exporter_names", "extras_of", "find_exporter"]
