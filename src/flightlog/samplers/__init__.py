"""Read the machine."""
