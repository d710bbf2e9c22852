"""Sessions on Dragon."""
