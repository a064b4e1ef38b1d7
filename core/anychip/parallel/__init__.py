"""Communicators and sharding, applied to a model from outside."""
