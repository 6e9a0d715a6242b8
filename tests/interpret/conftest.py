"""Small encoders and documents that the tests of reading share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.interpret import Explainer
from sopa_plugin.models import Model, TextClassifier

WORDS = [
    "the",
    "a",
    "film",
    "story",
    "is",
    "very",
    "not",
    "never",
    "dull",
    "funny",
    "good",
    "bad",
    ",",
    ".",
]
LABELS = ["negative", "neutral", "positive"]
DIM = 6


@pytest.fixture(autouse=True)
def terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


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


MakeModel = Callable[..., TextClassifier]


@pytest.fixture
def make_model() -> MakeModel:
    """A random classifier of texts over `WORDS`; keywords are the encoder's."""

    def make(embedder: dict[str, Any] | None = None, tokenizer: Any = None, **encoder: Any) -> Any:
        torch.manual_seed(6)
        params = {
            "type": "text_classifier",
            "embedder": embedder or {"type": "static", "embedding_dim": DIM, "unknown": "random"},
            "encoder": encoder or {"type": "sopa", "patterns": {"2": 1, "3": 2, "5": 2}},
            "head": {"type": "mlp", "hidden_dim": 4},
        }
        model = Model.from_params(
            params, tokenizer=tokenizer or make_tokenizer(WORDS), labels=LABELS
        )
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.startswith(("encoder.arcs", "encoder.convolutions")):
                    parameter.copy_(2 * torch.randn_like(parameter))
        return model.eval()

    return make
