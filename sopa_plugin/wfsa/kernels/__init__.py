"""Compiled parts of the fast kernels; `cpu` and `cuda` are what to call."""
