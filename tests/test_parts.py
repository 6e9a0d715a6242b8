"""What every registered encoder, head and embedder holds to; new ones are tested by being there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sopa_plugin.embedders import TokenEmbedder
from sopa_plugin.encoders import PackedSeq2VecEncoder, Seq2VecEncoder, pack
from sopa_plugin.heads import ClassifierHead
from sopa_plugin.registry import check, fill_defaults

DIM = 6
LENGTHS = (0, 1, 2, 5, 12)
# Arguments that have no default.
REQUIRED: dict[str, dict[str, Any]] = {
    "sopa": {"patterns": {"4": 3, "2": 2}},
    "sopa_released": {"patterns": {"4": 3, "2": 2}},
}
ENCODERS = Seq2VecEncoder.list_available()
PACKED = [
    name for name in ENCODERS if issubclass(Seq2VecEncoder.by_name(name), PackedSeq2VecEncoder)
]
PER_ENCODER = pytest.mark.parametrize("name", ENCODERS)
PER_HEAD = pytest.mark.parametrize("name", ClassifierHead.list_available())


def encoder_of(name: str) -> Seq2VecEncoder:
    torch.manual_seed(0)
    return Seq2VecEncoder.from_params({"type": name, **REQUIRED.get(name, {})}, input_dim=DIM)


def head_of(name: str) -> ClassifierHead:
    torch.manual_seed(0)
    return ClassifierHead.from_params(name, input_dim=DIM, num_labels=3)


def documents() -> tuple[Tensor, Tensor]:
    """Documents of all `LENGTHS`, `[batch, tokens, DIM]`, and their mask."""
    torch.manual_seed(1)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(*mask.shape, DIM), mask


def assert_weights_are_all_the_state(build: Callable[[], nn.Module], *inputs: Tensor) -> None:
    """Whether weights, saved, make another instance the same: one built anew or on meta."""
    saved = build().eval()
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    weights = copy.deepcopy(saved.state_dict())
    anew = build().eval()
    anew.load_state_dict(weights)
    assert torch.equal(anew(*inputs), saved(*inputs))
    with torch.device("meta"):  # as from_pretrained does
        empty = build().eval()
    empty.load_state_dict(weights, assign=True)
    assert torch.equal(empty(*inputs), saved(*inputs))


@PER_ENCODER
def test_encoder_gives_finite_vectors_of_its_output_dim(name: str) -> None:
    encoder = encoder_of(name)
    assert encoder.get_input_dim() == DIM
    for _ in encoder.train(), encoder.eval():
        vectors = encoder(*documents())
        assert vectors.shape == (len(LENGTHS), encoder.get_output_dim())
        assert vectors.isfinite().all()


@PER_ENCODER
@pytest.mark.parametrize("mask_type", [torch.bool, torch.long])
def test_encoder_never_looks_at_padding(name: str, mask_type: torch.dtype) -> None:
    encoder = encoder_of(name).eval()
    tokens, mask = documents()
    vectors = encoder(tokens.masked_fill(~mask[:, :, None], float("nan")), mask.to(mask_type))
    for row, length in enumerate(LENGTHS):
        document = (slice(row, row + 1), slice(max(length, 1)))
        alone = encoder(tokens[document], mask[document])
        torch.testing.assert_close(vectors[row], alone[0])


@PER_ENCODER
def test_encoder_says_its_sizes_and_that_one_document_is_no_batch(name: str) -> None:
    encoder = encoder_of(name)
    sizes = f"(input_dim={DIM}, output_dim={encoder.get_output_dim()}"
    assert sizes in " ".join(repr(encoder).split()).replace("( ", "(")
    tokens, mask = documents()
    with pytest.raises(ValueError, match=rf"found \[12, {DIM}\]; one document is a batch of one"):
        encoder(tokens[0], mask[0])


@PER_ENCODER
def test_encoder_refuses_a_mask_that_is_none(name: str) -> None:
    encoder = encoder_of(name)
    tokens, mask = documents()
    # as many numbers as there are tokens, so nothing else would fail
    for wrong in (mask[:, 1:], mask.T):
        with pytest.raises(ValueError, match=r"mask: expected \[5, 12\].* found \["):
            encoder(tokens, wrong)
    for holes in (mask.flip(1), mask.index_fill(1, torch.tensor([2]), False)):
        with pytest.raises(ValueError, match="real tokens first, then its padding"):
            encoder(tokens, holes)


@PER_ENCODER
def test_gradients_reach_tokens_and_every_weight_of_an_encoder(name: str) -> None:
    encoder = encoder_of(name).train()
    tokens, mask = documents()
    tokens = tokens.repeat(4, 1, 1).requires_grad_()
    mask = mask.repeat(4, 1)
    vectors = encoder(tokens, mask)
    (vectors * torch.randn_like(vectors)).sum().backward()
    assert tokens.grad is not None
    assert tokens.grad.isfinite().all()
    assert tokens.grad[mask].any()
    assert not tokens.grad[~mask].any()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@PER_ENCODER
def test_encoder_is_its_params_and_its_weights(name: str) -> None:
    assert_weights_are_all_the_state(lambda: encoder_of(name), *documents())


@PER_ENCODER
def test_filled_in_params_build_the_same_encoder(name: str) -> None:
    filled = fill_defaults(Seq2VecEncoder, {"type": name, **REQUIRED.get(name, {})})
    assert check(Seq2VecEncoder, filled) == []
    torch.manual_seed(0)
    again = Seq2VecEncoder.from_params(filled, input_dim=DIM).eval()
    assert torch.equal(again(*documents()), encoder_of(name).eval()(*documents()))


@pytest.mark.parametrize("name", PACKED)
def test_packed_documents_get_the_same_vectors(name: str) -> None:
    encoder = encoder_of(name).eval()
    tokens, mask = documents()
    tokens[4] = tokens[4, 0]  # one word, said twelve times: one row
    packed = pack(tokens, mask)
    rows, index = packed.rows[packed.index].unique(dim=0, return_inverse=True)
    assert len(rows) < len(index)
    torch.testing.assert_close(
        encoder.forward_packed(rows, index, packed.offsets), encoder(tokens, mask)
    )


@PER_HEAD
def test_head_gives_finite_logits_and_gradients(name: str) -> None:
    head = head_of(name)
    document = torch.randn(20, DIM, requires_grad=True)
    logits = head(document)
    assert logits.shape == (20, 3)
    logits.square().sum().backward()
    for parameter in (document, *head.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.grad.any()


@PER_HEAD
def test_head_is_its_params_and_its_weights(name: str) -> None:
    assert_weights_are_all_the_state(lambda: head_of(name), torch.randn(5, DIM))


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (Seq2VecEncoder, "bilstm", "hidden_dim", 0),
        (Seq2VecEncoder, "bilstm", "dropout", -0.5),
        (Seq2VecEncoder, "cnn", "num_filters", 0),
        (Seq2VecEncoder, "cnn", "window_sizes", [0]),
        (Seq2VecEncoder, "cnn", "window_sizes", []),
        (Seq2VecEncoder, "cnn", "window_sizes", [3, 3]),
        (Seq2VecEncoder, "cnn", "dropout", 1.0),
        (Seq2VecEncoder, "dan", "word_dropout", 1.0),
        (ClassifierHead, "mlp", "hidden_dim", 0),
        (ClassifierHead, "mlp", "dropout", -0.1),
    ],
)
def test_impossible_values_are_named(kind: Any, name: str, key: str, value: Any) -> None:
    (problem,) = check(kind, {"type": name, key: value}, "model.part")
    assert problem.path.startswith(f"model.part.{key}")
    dims = dict.fromkeys(kind.handed_over, 3)
    with pytest.raises(ValueError, match=key):
        kind.by_name(name)(**dims, **{key: value})


@pytest.mark.parametrize("kind", [Seq2VecEncoder, ClassifierHead, TokenEmbedder])
def test_what_is_handed_over_is_not_configured(kind: Any) -> None:
    for name in kind.list_available():
        for key in kind.handed_over | kind.by_name(name).handed_over:
            found = [str(each) for each in check(kind, {"type": name, key: 3})]
            assert any("handed over" in each for each in found), (name, key)
