"""Compiling a model's kernels beside its start, for a device that need not be there: a rehearsal, and who compiles."""
