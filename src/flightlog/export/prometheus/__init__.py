"""Figures in Prometheus's text format."""

from pathlib import Path

DASHBOARDS = Path(__file__).with_name("dashboards")
"""Folder of dashboards for Grafana, one JSON file for each set of names of metrics."""
