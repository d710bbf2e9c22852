"""Traces for Perfetto's and Chrome's viewers."""
