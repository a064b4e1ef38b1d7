"""What a model's text means: reasoning, tool calls and content, one file a family of formats."""
