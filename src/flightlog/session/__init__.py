"""Manifest, plan, lock, session, client and cache: the second way in."""
