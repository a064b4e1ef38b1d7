"""The step loop of a torch device."""
