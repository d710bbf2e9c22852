"""Flightlog: the flight recorder for Python compute."""

__version__ = "0.1.0"
