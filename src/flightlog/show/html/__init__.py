"""Pages of HTML that need nothing beside them."""
