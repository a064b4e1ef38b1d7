"""Linear layers: plain weights, codes of 8 bits and of 4, and how their products are cut."""
