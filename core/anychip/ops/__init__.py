"""Ops: reference, input generator, tolerance, implementations; `bind` chooses once at load."""
