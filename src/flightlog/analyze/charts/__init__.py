"""Charts of a run: results of bounded size, whatever the size of the run."""
