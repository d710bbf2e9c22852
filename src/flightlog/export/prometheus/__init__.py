"""Figures in Prometheus's text format."""
