"""Batches: files of requests, answered by the same handlers as requests over HTTP."""
