"""The CPU platform of anychip."""
