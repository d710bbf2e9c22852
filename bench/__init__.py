"""The budgets, each a ratio to a peer or a floor measured in the same run."""
