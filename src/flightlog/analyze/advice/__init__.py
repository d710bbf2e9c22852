"""What to change next time: what to request, and how to lay the work out."""
