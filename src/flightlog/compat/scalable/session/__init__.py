"""What `scalable.session` offers."""

from flightlog.compat.scalable.session.session import ScalableSession

__all__ = ["ScalableSession"]
