"""Kernels in Triton, which more than one vendor can run. Imported only by a platform that lists them.

`programs/` holds what runs on the device, in Triton's language; the files beside it launch that.
"""
