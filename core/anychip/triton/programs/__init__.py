"""Device code. Its functions are compiled by Triton: arguments in capitals are constants of a compiled variant."""
