"""What to say when something of the Hugging Face Hub cannot be had."""

from __future__ import annotations

HUB_HELP = (
    "The Hugging Face Hub must be in reach (HF_HUB_OFFLINE unset, HF_TOKEN set for what is "
    "private, HF_ENDPOINT for a mirror), or have it in its cache (HF_HOME)"
)
