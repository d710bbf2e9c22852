"""What every layer uses and nothing of a run's own: errors, settings, units, text, time, locks, threads,
plugins.
"""
