"""Small encoders and documents that the tests of reading share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.interpret import Explainer

WORDS = "the a film story is very not never dull funny good bad , .".split()
LABELS = ["negative", "neutral", "positive"]
DIM = 6


@pytest.fixture
def vectors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {word: random.normal(size=DIM) for word in WORDS}


@pytest.fixture
def documents() -> list[list[str]]:
    """Forty documents of 0 to 9 words; some say the same."""
    random = np.random.default_rng(4)
    made = [[str(word) for word in random.choice(WORDS, size=n % 10)] for n in range(38)]
    return [*made, made[7], made[9][:4]]


MakeExplainer = Callable[..., Explainer]


@pytest.fixture
def make_explainer(vectors: dict[str, np.ndarray]) -> MakeExplainer:
    """An explainer of a random encoder and head; keywords are the encoder's."""

    def make(replacement: str = "no_match", **options: Any) -> Explainer:
        torch.manual_seed(5)
        patterns = options.pop("patterns", {2: 1, 3: 2, 5: 2})
        encoder = SopaEncoder(DIM, patterns, **options)
        with torch.no_grad():
            # Far from the first draw, so that scores differ and self-loops and epsilons are taken.
            for parameter in encoder.arcs.parameters():
                parameter.copy_(2 * torch.randn_like(parameter))
        head = nn.Sequential(nn.Linear(sum(patterns.values()), 4), nn.ReLU(), nn.Linear(4, 3))
        return Explainer.from_encoder(encoder, vectors, head, LABELS, replacement)

    return make
