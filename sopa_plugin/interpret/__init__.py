"""What a model's patterns match and why a document got its label (paper, section 7)."""

from __future__ import annotations
