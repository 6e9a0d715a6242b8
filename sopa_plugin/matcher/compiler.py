"""From a trained model to its matcher."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from sopa_plugin.data.tokenizers.whitespace import BLANKS
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.matcher.matcher import Matcher, Settings

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
        return "it has no tokenizer"
    if _read_tokenizer(model.tokenizer) is None:
        return "its tokenizer does something else than to split text on blanks"
    return None


def compile_model(model: TextClassifier) -> Matcher:
    """The matcher of a trained model: the same labels, and its probabilities but for rounding.

    Raises:
        UserError: the model cannot be compiled (`obstacle` says why).
    """
    problem = obstacle(model)
    if problem is not None:
        raise UserError(f"this model cannot be compiled: {problem}")
    vocabulary = _read_tokenizer(model.tokenizer)
    assert vocabulary is not None
    words, unknown, lowercase = vocabulary
    settings = Settings(model.config.encoder, model.config.head, model.labels, unknown, lowercase)
    state = _arc_scores(model, len(words)) | {"class_log_prior": model.class_log_prior}
    for name, part in (("document_vector", _encoder(model).document_vector), ("head", model.head)):
        state |= {f"{name}.{key}": each for key, each in part.state_dict().items()}
    matcher = Matcher(settings, words)
    matcher.load_state_dict({key: each.cpu().clone() for key, each in state.items()}, assign=True)
    return matcher.requires_grad_(False)


@torch.no_grad()
def _arc_scores(model: TextClassifier, num_words: int) -> dict[str, Tensor]:
    """The matcher's `table` and `epsilon`."""
    training, encoder = model.training, _encoder(model)
    model.eval()
    parts = []
    for ids in torch.arange(num_words, device=model.device).split(_ROWS_AT_ONCE):
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


class _Vocabulary(NamedTuple):
    words: list[str]  # in the order of their ids
    unknown: int
    lowercase: bool


def _read_tokenizer(tokenizer: PreTrainedTokenizerBase) -> _Vocabulary | None:
    """What a whitespace tokenizer does; None of any other."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    parts = json.loads(backend.to_str())
    normalizer = parts["normalizer"] or {"type": "Sequence", "normalizers": []}
    steps = [each["type"] for each in normalizer.get("normalizers", [normalizer])]
    vocabulary: dict[str, int] = parts["model"].get("vocab", {})
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {each["content"] for each in parts["added_tokens"] if each["special"]}
    plain = (
        parts["model"]["type"] == "WordLevel"
        and parts["pre_tokenizer"] == _SPLIT
        and set(steps) <= {"Lowercase"}
        and backend.num_special_tokens_to_add(False) == 0
        and parts["truncation"] is parts["padding"] is None
        and tokenizer.split_special_tokens
        and len(special) == len(parts["added_tokens"])
        and [vocabulary[word] for word in words] == list(range(len(words)))
    )
    if not plain:
        return None
    return _Vocabulary(words, vocabulary[parts["model"]["unk_token"]], "Lowercase" in steps)
