"""A mixture's experts: pairs of tokens and experts put together, and their products."""
