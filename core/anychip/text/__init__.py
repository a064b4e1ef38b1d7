"""Tokenizer, chat template, incremental detokenizer and stop strings; imports no torch."""
