"""Copies of runs in object stores and folders: written, checked, and read through local copies."""
