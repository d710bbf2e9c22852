"""A run as it happens, from its files alone."""
