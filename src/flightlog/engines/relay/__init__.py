"""Recording on hosts that do not see the run directory: into a local spool, sent to the run's own process."""
