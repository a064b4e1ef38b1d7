"""Kernels in Triton, which more than one vendor can run. Imported only by a platform that lists them.

`programs/` and `gluon_programs/` hold what runs on the device, in Triton's language and in Gluon, its lower one. All
else launches that:

    platform.py, runner.py      what a vendor's package inherits
    provider.py                 every op that has a kernel, by name
    chip.py, tuning.py          what a vendor's package says of a chip
    attention/                  caches, a step's index work, attention itself
    linear/, experts/           products with weights
    rows.py, rounding.py        normalizations, gated activations, numbers in 8 bits
    logits.py, sampling.py      what is done to logits, and the choice of tokens
    sizes.py, graphs.py         which steps are captured, and how
    ahead/                      compiling beside a start
    peers.py, copies.py         sums over GPUs; copies between host and device
"""
