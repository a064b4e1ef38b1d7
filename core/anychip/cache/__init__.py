"""KV blocks: pool, prefix cache, block tables."""
