"""What a failure most likely is, and what to do about it."""
