"""New packages for people who bring a chip: what `anychip new-platform` writes."""
