"""Workflow Run RO-Crates."""
