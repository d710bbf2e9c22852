"""Device memory while a run is recorded: tracking, its events, and what is kept when a device runs out."""
