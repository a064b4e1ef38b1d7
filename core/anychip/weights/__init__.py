"""Where a model's files come from and how its tensors are read, one at a time."""
