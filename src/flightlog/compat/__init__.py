"""The public names of other systems over this core: a project moves by changing an import."""
