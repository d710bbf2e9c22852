"""The only code that knows run files."""
