"""Structured output: what a request asks for as a grammar, and grammars as masks over the vocabulary."""
