"""What `scalable.cli.main` offers."""

from flightlog.compat.scalable.console import main

__all__ = ["main"]
