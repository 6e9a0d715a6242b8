"""The `released` preset against cases scored by the authors' released implementation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sopa_plugin.encoders import Packed, Seq2VecEncoder, SopaEncoder
from sopa_plugin.wfsa import spell_out

ORACLE = Path(__file__).parents[3] / "shared" / "oracle" / "released_scores.json"
SEMIRINGS = {"maxtimes": "max_product", "maxplus": "max_sum", "prob": "sum_product"}
KINDS = {"HP": "main_path", "SL": "self_loop", "EP": "epsilon"}

pytestmark = pytest.mark.skipif(
    not ORACLE.exists(),
    reason="the shared folder with the oracle's cases is not beside the project",
)


def load_cases() -> list[dict[str, Any]]:
    return json.loads(ORACLE.read_text())["cases"] if ORACLE.exists() else []


def arc_places(case: dict[str, Any], encoder: SopaEncoder) -> list[tuple[int, int, int]]:
    """For each row of our weights, its place `(pattern, diagonal, state)` in the oracle's."""
    layout, last = encoder.layout, case["num_diags"] - 1
    blocks = [(last, i, block) for i, block in enumerate(layout.main_path)]
    blocks += [(0, i, block) for i, block in enumerate(layout.loops) if block]
    return [
        (pattern, diagonal, i)
        for diagonal, i, block in blocks
        for pattern in range(block.first_pattern, layout.num_patterns)
    ]


def epsilon_places(encoder: SopaEncoder) -> list[tuple[int, int]]:
    return [
        (pattern, i)
        for i, block in enumerate(encoder.layout.epsilon_arcs)
        for pattern in range(block.first_pattern, encoder.layout.num_patterns)
    ]


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def build(case: dict[str, Any]) -> SopaEncoder:
    options, params = case["options"], case["params"]
    encoder = Seq2VecEncoder.from_params(
        {
            "type": "sopa_released",
            "patterns": {str(length): count for length, count in case["pattern_specs"]},
            "semiring": SEMIRINGS[case["semiring"]],
            "encoding": "identity" if case["semiring"] == "maxplus" else "sigmoid",
            "self_loops": "none" if options["no_sl"] else "state",
            "epsilons": not options["no_eps"],
            "bias_scale": options["bias_scale_param"],
            "boundary_tokens": case["num_padding_tokens"] > 0,
        },
        input_dim=len(case["embeddings"][0]),
    )
    assert isinstance(encoder, SopaEncoder)
    assert list(encoder.layout.lengths) == case["pattern_lengths"]
    places = tuple(torch.tensor(arc_places(case, encoder)).T)
    with torch.no_grad():
        encoder.arcs.weight.copy_(tensor(params["diags"])[places])
        encoder.arcs.bias.copy_(tensor(params["bias"])[places])
        if not options["no_eps"]:
            epsilons = tuple(torch.tensor(epsilon_places(encoder)).T)
            encoder.arcs.epsilon.copy_(tensor(params["epsilon"])[epsilons])
    return encoder


def pack_documents(case: dict[str, Any]) -> Packed:
    """The documents without the boundary tokens, which the encoder puts in itself."""
    width = case["num_padding_tokens"]
    documents = [document[width : len(document) - width] for document in case["docs"]]
    lengths = torch.tensor([0, *map(len, documents)])
    index = torch.tensor([token for document in documents for token in document])
    return Packed(tensor(case["embeddings"]), index, lengths.cumsum(0))


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case["name"])
def test_scores_loss_and_gradients_equal_the_released(case: dict[str, Any]) -> None:
    tolerance = (
        {"rtol": 0, "atol": 1e-5}
        if case["semiring"] == "maxplus"
        else {"rtol": 1e-5, "atol": 1e-12}
    )
    encoder, params = build(case), case["params"]
    scores = encoder.forward_packed(*pack_documents(case))
    # A document that cannot match scores 0 here, e^-100 there.
    torch.testing.assert_close(scores, tensor(case["scores"]), **tolerance)

    mlp = {
        name: tensor(params[f"mlp_{name}"]).requires_grad_() for name in ("w0", "b0", "w1", "b1")
    }
    hidden = functional.linear(scores, mlp["w0"], mlp["b0"]).relu()
    logits = functional.linear(hidden, mlp["w1"], mlp["b1"])
    torch.testing.assert_close(logits, tensor(case["logits"]), rtol=1e-5, atol=1e-5)
    loss = functional.cross_entropy(logits, torch.tensor(case["gold"]), reduction="sum")
    torch.testing.assert_close(loss, tensor(case["loss_sum"]), rtol=1e-5, atol=1e-5)

    loss.backward()
    close = tolerance
    grads, places = case["grads"], arc_places(case, encoder)
    for ours, name in ((encoder.arcs.weight, "diags"), (encoder.arcs.bias, "bias")):
        theirs = tensor(grads[name])
        torch.testing.assert_close(ours.grad, theirs[tuple(torch.tensor(places).T)], **close)
        # Every other parameter of theirs is padding.
        padding = torch.ones(theirs.shape[:3], dtype=torch.bool)
        padding[tuple(torch.tensor(places).T)] = False
        assert not theirs[padding].any()
    if encoder.layout.epsilons:
        theirs = tensor(grads["epsilon"])[tuple(torch.tensor(epsilon_places(encoder)).T)]
        torch.testing.assert_close(encoder.arcs.epsilon.grad, theirs, **close)
    for name in ("w0", "b1"):
        torch.testing.assert_close(mlp[name].grad, tensor(grads[f"mlp_{name}"]), **close)


@pytest.mark.parametrize(
    "case", [case for case in load_cases() if "best_paths" in case], ids=lambda case: case["name"]
)
def test_best_paths_equal_the_released(case: dict[str, Any]) -> None:
    encoder, packed = build(case), pack_documents(case)
    layout, _, arcs = encoder.operands(*packed)
    spelt = spell_out(layout, arcs, encoder.best_matches(*packed))
    for ours, theirs in zip(spelt, case["best_paths"], strict=True):
        for match, released in zip(ours, theirs, strict=True):
            if match is None:
                assert released["score"] <= -100
                continue
            assert match.score == pytest.approx(released["score"], rel=1e-5, abs=1e-5)
            steps, consumed = [], match.start
            for arc in match.arcs:
                consumed += arc.token is not None
                steps.append((arc.kind, consumed))
            assert steps == [(KINDS[kind], end) for kind, end in released["path"]]
