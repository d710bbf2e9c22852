"""Stands here so that every test can import `building`."""
