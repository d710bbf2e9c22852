"""Sessions on Ray."""
