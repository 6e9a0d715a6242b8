"""From a trained model to its matcher."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from sopa_plugin.compiled.matcher import Matcher, Settings
from sopa_plugin.compiled.pieces import Pieces
from sopa_plugin.compiled.words import Words
from sopa_plugin.data.tokenizers.whitespace import BLANKS
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError

if TYPE_CHECKING:
    from sopa_plugin.models import TextClassifier

_ROWS_AT_ONCE = 4096
_SPLIT = {"type": "Split", "pattern": {"Regex": BLANKS}, "behavior": "Removed", "invert": False}


def obstacle(model: TextClassifier) -> str | None:
    """Why a model cannot be compiled; None where it can."""
    if type(model.encoder) is not SopaEncoder:
        return "its encoder is not soft patterns"
    if model.embedder.contextual:
        return "its word vectors depend on the words around"
    if model.dtype != torch.float32:
        return f"its weights are {model.dtype}, not torch.float32"
    if getattr(model, "tokenizer", None) is None:
        return "it has no tokenizer: give it one, to_matcher(tokenizer)"
    if not isinstance(model.tokenizer, PreTrainedTokenizerFast):
        return "its tokenizer is not one of the tokenizers library"
    return None


def compile_model(model: TextClassifier) -> Matcher:
    """The matcher of a trained model: the same labels, and its probabilities but for rounding.

    Raises:
        UserError: the model cannot be compiled (`obstacle` says why).
    """
    problem = obstacle(model)
    if problem is not None:
        raise UserError(f"this model cannot be compiled: {problem}")
    assert isinstance(model.tokenizer, PreTrainedTokenizerFast)
    state = _arc_scores(model) | {"class_log_prior": model.class_log_prior}
    for name, part in (("document_vector", _encoder(model).document_vector), ("head", model.head)):
        state |= {f"{name}.{key}": each for key, each in part.state_dict().items()}
    settings = Settings(model.config.encoder, model.config.head, model.labels)
    matcher = Matcher(settings, _words(model.tokenizer), len(state["table"]))
    matcher.load_state_dict({key: each.cpu().clone() for key, each in state.items()}, assign=True)
    return matcher.requires_grad_(False)


@torch.no_grad()
def _arc_scores(model: TextClassifier) -> dict[str, Tensor]:
    """The matcher's `table` and `epsilon`."""
    training, encoder = model.training, _encoder(model)
    model.eval()
    parts = []
    for ids in torch.arange(len(model.tokenizer), device=model.device).split(_ROWS_AT_ONCE):
        parts.append(encoder.arc_scores(model.embedder(ids, torch.ones_like(ids)))[0])
    # shape: [1, R]; of a boundary token
    zero, epsilon = encoder.arc_scores(parts[0].new_zeros(1, encoder.get_input_dim()))
    model.train(training)
    if encoder.boundary_width:
        parts.append(zero)
    return {"table": torch.cat(parts), "epsilon": epsilon}


def _encoder(model: TextClassifier) -> SopaEncoder:
    assert isinstance(model.encoder, SopaEncoder)
    return model.encoder


def _words(tokenizer: PreTrainedTokenizerFast) -> Words | Pieces:
    """What splits text as `tokenizer` does: fast code of ours if that is on blanks alone."""
    backend = tokenizer.backend_tokenizer
    serialized, split_special_tokens = backend.to_str(), bool(tokenizer.split_special_tokens)
    parts = json.loads(serialized)
    normalizer = parts["normalizer"] or {"type": "Sequence", "normalizers": []}
    steps = [each["type"] for each in normalizer.get("normalizers", [normalizer])]
    vocabulary: dict[str, int] = parts["model"]["vocab"]
    plain = (
        parts["model"]["type"] == "WordLevel"
        and parts["pre_tokenizer"] == _SPLIT
        and set(steps) <= {"Lowercase"}
        and backend.num_special_tokens_to_add(False) == 0
        and split_special_tokens
        and all(each["special"] for each in parts["added_tokens"])
        and sorted(vocabulary.values()) == list(range(len(vocabulary)))
    )
    if not plain:
        return Pieces(serialized, split_special_tokens)
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    return Words(words, vocabulary[parts["model"]["unk_token"]], "Lowercase" in steps)
