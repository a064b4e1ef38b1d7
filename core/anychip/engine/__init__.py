"""The engine: scheduler, step loop, messages and clients."""
