"""What earlier runs of a project say: attempts, durations, trends."""
