"""What a run cost: rates, usage, and how worker time splits into useful and wasted."""
