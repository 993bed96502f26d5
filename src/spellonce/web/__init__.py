"""A page to look at a model: read, write, spell, explore (`spellonce serve`)."""
