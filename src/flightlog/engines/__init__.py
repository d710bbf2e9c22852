"""Where tasks run: one contract, many engines."""
