"""A load generator for any server that speaks OpenAI's protocol."""
