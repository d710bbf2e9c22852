"""Adapters with the public names of other systems: a project moves by changing an import."""
