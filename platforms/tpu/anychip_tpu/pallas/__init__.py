"""Kernels in Pallas. They need JAX alone, and nothing here imports torch."""
