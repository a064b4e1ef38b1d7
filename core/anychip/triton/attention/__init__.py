"""Attention over the paged cache and over whole prompts: caches, a step's index work, tiles, launches."""
