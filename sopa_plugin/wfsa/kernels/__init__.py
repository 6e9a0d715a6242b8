"""Compiled parts of the fast kernels; `cpu_kernel` and `cuda_kernel` are what to call."""
