"""What other tools recorded, made into runs or merged into them."""
