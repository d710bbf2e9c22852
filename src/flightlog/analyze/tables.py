"""Runs as tables, for analysis: the views and what they hold are described in `flightlog.store.tables`."""

from flightlog.store.tables import open_tables

__all__ = ["open_tables"]
