"""A trained `TextClassifier` compiled: what `sopa_plugin.compiled` predicts with, without torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from sopa_plugin.compiled import CompiledClassifier
from sopa_plugin.compiled.classifier import SEMIRINGS, Settings
from sopa_plugin.compiled.words import WithUnknown, words_of
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.encoders.sopa_layers import boundary_places
from sopa_plugin.errors import UserError
from sopa_plugin.models.open_vocabulary import OpenVocabularyTokenizer

_ROWS_AT_ONCE = 4096


def reason_against(model: Any) -> str | None:
    """Why a `TextClassifier` cannot be compiled; None where it can."""
    encoder, tokenizer = model.encoder, model.tokenizer
    if type(encoder) is not SopaEncoder:
        return "its encoder is not soft patterns"
    options = encoder.options
    if options.semiring not in SEMIRINGS:
        return f"its semiring is none of {', '.join(SEMIRINGS)}"
    plain = options.is_log_sigmoid and options.self_loop_scale is None and not encoder.arcs.shared
    if "ngrams" in getattr(tokenizer, "model_input_names", ()) and not plain:
        return "its unknown words have n-grams, and its arcs are other than sigmoids"
    if model.embedder.contextual:
        return "its word vectors depend on the words around"
    if model.dtype != torch.float32:
        return f"its weights are {model.dtype}, not torch.float32"
    if tokenizer is None:
        return "it has no tokenizer: give it one, to_compiled(tokenizer)"
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return "its tokenizer is not one of the tokenizers library"
    return None


@torch.no_grad()
def compiled(model: Any) -> CompiledClassifier:
    """A `TextClassifier` in evaluation mode compiled; raises `UserError` where it cannot be."""
    reason = reason_against(model)
    if reason is not None:
        raise UserError(f"this model cannot be compiled: {reason}")
    encoder, tokenizer = model.encoder, model.tokenizer
    arcs, document, options = encoder.arcs, encoder.document_vector, encoder.options
    words: Any = words_of(
        tokenizer.backend_tokenizer.to_str(), bool(tokenizer.split_special_tokens)
    )
    if isinstance(tokenizer, OpenVocabularyTokenizer):
        words = WithUnknown(words, tokenizer.by_answers)
    ids = torch.arange(len(tokenizer), device=model.device).split(_ROWS_AT_ONCE)
    boundaries = encoder.boundary_rows(arcs.weight)
    parts = [encoder.arc_scores(some) for some in [*map(model.word_vectors, ids), boundaries]]
    state = {
        "class_log_prior": model.class_log_prior,
        **document.state_dict(prefix="document_vector."),
        **model.head.state_dict(prefix="head."),
    }
    if "ngrams" in tokenizer.model_input_names:
        rows = torch.tensor(sorted(set(tokenizer.by_answers.rows.values())), device=model.device)
        static = model.embedder if model.config.rules is None else model.embedder.vectors
        state |= {
            "unknown.rows": rows,
            "unknown.vectors": model.word_vectors(rows),
            "unknown.ngrams": static.own_rows.ngrams,
            "unknown.weight": arcs.weight,
            "unknown.bias": arcs.bias * options.bias_scale,
        }
    weights = {name: each.detach().cpu().numpy().copy() for name, each in state.items()}
    weights["table"] = np.concatenate([each.cpu().numpy() for each, _ in parts])
    weights["epsilon"] = parts[0][1].cpu().numpy()
    for name in ("sure", "halves", "scales"):
        weights[f"document_vector.{name}"] = np.array(getattr(document, name), np.float32)
    semiring = options.semiring
    logarithms = options.algebra.logarithms and document.output != "log_score"
    if semiring == "boolean":  # or is the maximum of logarithms, and their sum
        semiring, logarithms = "max_product", True
        with np.errstate(divide="ignore"):
            weights |= {name: np.log(weights[name]) for name in ("table", "epsilon")}
    settings = Settings(
        labels=model.labels,
        head=model.config.head or {},
        semiring=semiring,
        lengths=encoder.layout.lengths,
        options=encoder.layout.options,
        boundary_width=encoder.boundary_width,
        boundary_places=boundary_places(len(weights["table"]), len(boundaries)),
        exponential=logarithms,
        relu=document.activation == "relu",
        rules=[rule and rule.rule for rule in encoder.rules],
    )
    return CompiledClassifier(settings, words, weights)
