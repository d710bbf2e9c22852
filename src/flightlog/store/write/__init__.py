"""Writing: what one process records, and the run brought into its final form."""
