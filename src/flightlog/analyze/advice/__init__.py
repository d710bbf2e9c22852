"""What history says to change: what to ask for (`resources`), and how to lay the work out (`shape`)."""
