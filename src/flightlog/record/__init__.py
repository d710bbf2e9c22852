"""While the run lives."""
