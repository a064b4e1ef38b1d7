"""Programs in Gluon, Triton's language of layouts; which Triton has it: anychip.triton.keys."""
