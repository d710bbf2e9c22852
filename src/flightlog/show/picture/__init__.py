"""Pictures of our figures, without a browser: PNG and SVG, drawn by Matplotlib."""

from flightlog.show.picture.canvas import LARGEST_PX, picture

__all__ = ["LARGEST_PX", "picture"]
