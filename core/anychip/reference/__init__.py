"""The built-in platform: plain torch operators on any torch device."""
