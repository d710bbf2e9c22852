"""Results to text; no files, no printing."""
