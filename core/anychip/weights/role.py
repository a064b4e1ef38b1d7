"""What matrices are for, which a model knows and a way to quantize asks."""

from typing import Literal

Role = Literal["inner", "attention", "attended", "first", "output"]
"""What a matrix is for, as far as rounding goes.

`attention`: it makes queries and keys, whose errors change what is attended to. `attended`: it takes what was attended
to, means without outliers. `first`: in the first layer, whose errors go on to all others. `output`: it makes the
logits, or is in the last layer, whose outliers are the largest.
"""
