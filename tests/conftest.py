"""For all tests: trainings run on the CPU, where a seed decides them to the last bit.

What is for GPUs (tests/wfsa/test_cuda.py) names its device and takes the GPU where there is
one.
"""

from __future__ import annotations

import os

os.environ["ACCELERATE_USE_CPU"] = "1"
