"""The SoPa encoder: options, documents of every shape, no match, gradients, compilation."""

from __future__ import annotations

import copy
import math
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.encoders import Seq2VecEncoder, SopaEncoder, pack
from sopa_plugin.errors import UserError
from sopa_plugin.registry import ConfigError, check, fill_defaults
from sopa_plugin.wfsa import Semiring, spell_out

DIM = 6
PATTERNS = {5: 2, 2: 2, 3: 1}
TRAINABLE = ("max_product", "max_sum", "sum_product", "log")


def make(seed: int = 0, **options: Any) -> SopaEncoder:
    torch.manual_seed(seed)
    return SopaEncoder(DIM, options.pop("patterns", PATTERNS), **options)


def batch_of(*lengths: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    width = max(lengths, default=0)
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randn(len(lengths), width, DIM, generator=generator)
    return tokens, torch.arange(width) < torch.tensor(lengths, dtype=torch.long)[:, None]


def columns_of(encoder: SopaEncoder, kind: str, pattern: int) -> list[int]:
    blocks = encoder.layout.main_path if kind == "main_path" else encoder.layout.loops
    return [
        block.start + pattern - block.first_pattern
        for block in blocks
        if block is not None and pattern >= block.first_pattern
    ]


# Scores


def test_a_document_scores_its_best_span() -> None:
    """Worked by hand: one pattern of three states over one-dimensional words."""
    encoder = SopaEncoder(1, {3: 1}, output="score")
    with torch.no_grad():
        # Main path 1·x and -1·x, self-loop of the middle state 2·x, epsilons 0 and -10.
        encoder.arcs.weight.copy_(torch.tensor([[1.0], [-1.0], [2.0]]))
        encoder.arcs.bias.zero_()
        encoder.arcs.epsilon.copy_(torch.tensor([0.0, -10.0]))
    words = torch.tensor([3.0, 1.0, -2.0])[None, :, None]
    e = torch.sigmoid
    # 3, then 1 by the self-loop, then -2.
    expected = e(torch.tensor(3.0)) * e(torch.tensor(2.0)) * e(torch.tensor(2.0))
    # An epsilon and then -2: shorter, but the epsilon halves it.
    assert expected > 0.5 * e(torch.tensor(2.0))
    score = encoder(words, torch.ones(1, 3))
    torch.testing.assert_close(score, expected.reshape(1, 1))


@pytest.mark.parametrize("semiring", TRAINABLE)
def test_padding_never_matters(semiring: str) -> None:
    """Alone, padded by 100, in a batch or packed: 1e-6 (the matrix product may round otherwise)."""
    encoder = make(semiring=semiring)
    tokens, mask = batch_of(7, 3, 1, 0, 12)
    together = encoder(tokens, mask)
    padded = encoder(
        functional.pad(tokens, (0, 0, 0, 100), value=50.0), functional.pad(mask, (0, 100))
    )
    alone = torch.cat(
        [
            encoder(tokens[b : b + 1, :n], mask[b : b + 1, :n])
            for b, n in enumerate(mask.sum(dim=1).tolist())
        ]
    )
    packed = encoder.forward_packed(*pack(tokens, mask))
    for other in (padded, alone, packed):
        torch.testing.assert_close(other, together, rtol=1e-6, atol=1e-6)


def test_padding_cannot_spoil_gradients() -> None:
    encoder = make()
    tokens, mask = batch_of(7, 3)
    spoilt = tokens.masked_fill(~mask[..., None], float("nan"))
    grads = []
    for each in (tokens, spoilt):
        encoder.zero_grad()
        encoder(each, mask).square().sum().backward()
        grads.append(encoder.arcs.weight.grad)
    assert torch.equal(*grads)


def test_max_product_is_exp_of_max_sum_over_log_sigmoids() -> None:
    tokens, mask = batch_of(7, 3, 2)
    plain = {"normalization": "none"}
    products = make(**plain, output="score")(tokens, mask)
    sums = make(**plain, semiring="max_sum", encoding="log_sigmoid")(tokens, mask)
    matched = products > 0
    torch.testing.assert_close(products[matched], sums.exp()[matched])
    weights = make(**plain, encoding="exp", output="log_score")(tokens, mask)
    torch.testing.assert_close(weights, make(**plain, semiring="max_sum")(tokens, mask))


def test_by_default_the_head_sees_how_much_scores_exceed_arcs_of_one_half() -> None:
    lengths = {6: 2, 4: 2, 2: 2}  # three arcs on average: times 2^(3 - 2)
    torch.manual_seed(0)
    default = SopaEncoder(20, lengths)
    plain = SopaEncoder(20, lengths, output="score")
    plain.load_state_dict(default.state_dict())
    tokens = torch.nn.functional.normalize(torch.randn(40, 20, 20), dim=2)
    mask = torch.ones(40, 20)
    halves = torch.tensor([1 / 2, 1 / 2, 1 / 8, 1 / 8, 1 / 32, 1 / 32])
    torch.testing.assert_close(default(tokens, mask), 2 * (plain(tokens, mask) - halves))
    assert default(tokens, mask).abs().max() < 1
    unmatched = default(tokens[:1, :0], mask[:1, :0])
    torch.testing.assert_close(unmatched, -2 * halves[None])
    torch.testing.assert_close(default.document_vector.of_zero(), unmatched[0])


@pytest.mark.parametrize("semiring", ["sum_product", "log"])
def test_sums_are_shown_relative_to_a_path_of_arcs_as_they_start(semiring: str) -> None:
    encoder = SopaEncoder(20, {9: 2, 4: 2, 2: 2}, semiring=semiring, normalization="none")
    for each in (encoder.arcs.bias, encoder.arcs.epsilon):
        assert -5.5 < each.mean() < -2.5
    torch.testing.assert_close(encoder.arcs.weight.norm(dim=1).mean(), torch.tensor(4.0))
    with torch.no_grad():
        encoder.arcs.weight.zero_()
        encoder.arcs.bias.fill_(-4.0)
        encoder.arcs.epsilon.fill_(-1e4)
        # shape: [1, K]
        scores = encoder(torch.zeros(1, 8, 20), torch.ones(1, 8))
        scores = scores.exp() if semiring == "log" else scores
    # eight spans of one token, six of three, one of eight, and a loop now and then
    assert (scores >= torch.tensor([8.0, 8, 6, 6, 1, 1]) * 0.999).all()
    assert (scores <= torch.tensor([8.0, 8, 6, 6, 1, 1]) * 1.1).all()
    assert isinstance(SopaEncoder(20, {3: 2}, semiring=semiring).document_vector.norm, nn.LayerNorm)
    long = SopaEncoder(20, {200: 2}, semiring=semiring)(torch.zeros(1, 300, 20), torch.ones(1, 300))
    assert long.isfinite().all()


def test_other_outputs_are_not_scaled_by_default() -> None:
    raw = SopaEncoder.released(20, {3: 2}).document_vector
    assert (raw.scale, raw.output) == (1.0, "score")
    assert SopaEncoder(20, {3: 2}, semiring="max_sum").document_vector.scale == 1
    assert SopaEncoder(20, {3: 2}, encoding="exp").document_vector.output == "score"
    assert SopaEncoder(20, {200: 1}).document_vector.scale < 1e7  # no overflow


def test_log_is_the_logarithm_of_sum_product() -> None:
    tokens, mask = batch_of(7, 3, 2)
    for output in ("score", "relative"):
        plain = {"normalization": "none", "output": output}
        counts = make(semiring="sum_product", **plain)(tokens, mask)
        logs = make(semiring="log", **plain)(tokens, mask)
        matched = counts > 0
        torch.testing.assert_close(logs[matched], counts.log()[matched])


def test_a_boolean_encoder_is_a_hard_pattern() -> None:
    """`a b* c` over one-hot words: matches where it should, and says where."""
    encoder = SopaEncoder(3, {3: 1}, semiring="boolean", epsilons=False).eval()
    with torch.no_grad():
        main_a, main_c, loop_b = torch.eye(3)[[0, 2, 1]]
        encoder.arcs.weight.copy_(torch.stack([main_a, main_c, loop_b]) * 2)
        encoder.arcs.bias.fill_(-1)
    texts = ["abbc", "ac", "cabbbcb", "abb", "bca", ""]
    index = torch.tensor(["abc".index(letter) for text in texts for letter in text])
    offsets = torch.tensor([0, *map(len, texts)]).cumsum(0)
    packed = (torch.eye(3), index, offsets)
    assert encoder.forward_packed(*packed).flatten().tolist() == [1, 1, 1, 0, 0, 0]
    layout, _, arcs = encoder.operands(*packed)
    spelt = spell_out(layout, arcs, encoder.best_matches(*packed))
    spans = [(match.start, match.end) if match else None for (match,) in spelt]
    assert spans == [(0, 4), (0, 2), (1, 6), None, None, None]


def test_boolean_patterns_cannot_be_trained() -> None:
    encoder = make(semiring="boolean")
    with pytest.raises(UserError, match="has no gradient"):
        encoder(*batch_of(3))
    with torch.no_grad():
        assert encoder(*batch_of(3)).shape == (1, 5)


# No match


def test_an_encoding_without_gradients_cannot_be_trained() -> None:
    encoder = SopaEncoder(DIM, {3: 2}, semiring="sum_product", encoding="positive")
    tokens, mask = torch.randn(2, 5, DIM), torch.ones(2, 5)
    with pytest.raises(UserError, match="encoding 'positive' has no gradient"):
        encoder(tokens, mask)
    assert encoder.eval()(tokens, mask).isfinite().all()


@pytest.mark.parametrize("epsilons", [False, True])
@pytest.mark.parametrize("final_epsilon", [False, True])
@pytest.mark.parametrize("boundary_tokens", [False, True])
def test_the_least_tokens_that_a_pattern_can_match(
    epsilons: bool, final_epsilon: bool, boundary_tokens: bool
) -> None:
    encoder = SopaEncoder(
        DIM,
        {2: 1, 3: 1, 4: 1, 5: 1, 8: 1},
        epsilons=epsilons,
        final_epsilon=final_epsilon,
        boundary_tokens=boundary_tokens,
    )
    mask = torch.arange(8) < torch.arange(9)[:, None]
    scores = encoder.pattern_scores(*pack(torch.randn(9, 8, DIM), mask))
    matched = (scores > -torch.inf).int()
    assert matched.argmax(dim=0).tolist() == encoder.least_tokens()


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"output": "score"}, 0.0),
        ({"semiring": "sum_product"}, 0.0),
        ({"output": "log_score"}, None),
        ({"semiring": "max_sum"}, None),
        ({"semiring": "log"}, None),
    ],
)
def test_no_match_is_zero_or_a_learned_value(options: dict[str, Any], value: float | None) -> None:
    encoder = make(**options, normalization="none", epsilons=False)
    tokens, mask = batch_of(1, 4)
    # One word matches the two-state patterns only.
    unmatched = encoder(tokens, mask)[0, 2:]
    scores = encoder.pattern_scores(*pack(tokens, mask))[0, 2:]
    assert (scores == Semiring.named(encoder.options.semiring).zero).all()
    if value is not None:
        assert encoder.document_vector.no_match is None
        assert (unmatched == value).all()
        return
    learned = encoder.document_vector.no_match
    assert learned.tolist() == [-1, -1, -2, -4, -4]
    assert torch.equal(unmatched, learned[2:])
    unmatched.sum().backward()
    assert learned.grad.tolist() == [0, 0, 1, 1, 1]
    assert not encoder.arcs.weight.grad.any()


@pytest.mark.parametrize("normalization", ["none", "layer", "batch"])
@pytest.mark.parametrize("semiring", TRAINABLE)
def test_nothing_is_nan_on_documents_that_cannot_match(semiring: str, normalization: str) -> None:
    for lengths in ((0,), (1,), (0, 0), (1, 9, 0)):
        encoder = make(semiring=semiring, normalization=normalization, epsilons=False)
        tokens, mask = batch_of(*lengths)
        tokens.requires_grad_()
        vectors = encoder(tokens, mask)
        assert vectors.isfinite().all()
        vectors.square().sum().backward()
        assert all(each.grad is None or each.grad.isfinite().all() for each in encoder.parameters())
        assert tokens.grad.isfinite().all()


def test_an_empty_batch_gives_no_vectors() -> None:
    encoder = make()
    vectors = encoder(torch.zeros(0, 5, DIM), torch.zeros(0, 5))
    assert vectors.shape == (0, 5)
    vectors.sum().backward()
    assert not encoder.arcs.weight.grad.any()


# Options


def test_patterns_come_by_length_and_from_json_keys() -> None:
    encoder = Seq2VecEncoder.from_params(
        {"type": "sopa", "patterns": {"6": 1, "10": 2, "2": 1}}, input_dim=DIM
    )
    assert encoder.layout.lengths == (2, 6, 10, 10)
    assert (encoder.get_input_dim(), encoder.get_output_dim()) == (DIM, 4)


@pytest.mark.parametrize(
    ("options", "argument", "reason"),
    [
        ({"encoding": "identity"}, "encoding", "must be a positive weight; expected one of exp"),
        ({"semiring": "max_sum", "encoding": "sigmoid"}, "encoding", "must be a log-weight"),
        ({"semiring": "log", "encoding": "exp"}, "encoding", "must be a log-weight"),
        ({"semiring": "boolean", "encoding": "sigmoid"}, "encoding", "true and false"),
        ({"semiring": "max_prod"}, "semiring", "did you mean 'max_product'"),
        ({"encoding": "sigmoud"}, "encoding", "did you mean 'sigmoid'"),
        ({"semiring": "max_sum", "output": "log_score"}, "output", "no logarithms"),
        ({"semiring": "sum_product", "output": "excess"}, "output", "goes with"),
        ({"encoding": "exp", "output": "excess"}, "output", "goes with"),
        ({"semiring": "max_sum", "output": "relative"}, "output", "goes with"),
        ({"self_loops": "none", "boundary_loops": True}, "boundary_loops", "self_loops is 'none'"),
        ({"self_loops": "shared", "self_loop_scale": 0.5}, "self_loop_scale", "'shared'"),
        ({"epsilons": False, "epsilon_scale": 0.5}, "epsilon_scale", "no epsilons"),
        ({"self_loops": "none", "self_loop_scale": 0.5}, "self_loop_scale", "'none'"),
        ({"epsilon_scale": 0.0}, "epsilon_scale", "above 0"),
        ({"epsilon_scale": -0.5}, "epsilon_scale", "above 0"),
        ({"self_loop_scale": -0.5}, "self_loop_scale", "above 0"),
        ({"semiring": "sum_product", "epsilon_scale": -0.5}, "epsilon_scale", "none is below 0"),
        ({"semiring": "sum_product", "self_loop_scale": -1}, "self_loop_scale", "none is below 0"),
        ({"semiring": "boolean", "epsilon_scale": -1.0}, "epsilon_scale", "true and false"),
        ({"semiring": "boolean", "self_loop_scale": 0.5}, "self_loop_scale", "true and false"),
        ({"epsilon_scale": math.nan}, "epsilon_scale", "finite"),
        ({"semiring": "max_sum", "epsilon_scale": -math.inf}, "epsilon_scale", "finite"),
        ({"semiring": "log", "self_loop_scale": math.nan}, "self_loop_scale", "finite"),
        ({"semiring": "boolean", "self_loop_scale": math.inf}, "self_loop_scale", "finite"),
        (
            {"semiring": "boolean", "dropout": 0.1, "dropout_on": "scores"},
            "dropout_on",
            "larger than true",
        ),
        ({"final_epsilon": False, "empty_matches": True}, "empty_matches", "final_epsilon"),
        ({"patterns": {3: 1}, "normalization": "layer"}, "normalization", "single pattern"),
    ],
)
def test_senseless_combinations_are_refused(
    options: dict[str, Any], argument: str, reason: str
) -> None:
    config = {"type": "sopa", "patterns": PATTERNS, **options}
    (problem,) = check(Seq2VecEncoder, config, "model.encoder")
    assert problem.path == f"model.encoder.{argument}"
    assert reason in str(problem)
    with pytest.raises(ConfigError):
        Seq2VecEncoder.from_params(config, input_dim=DIM)
    with pytest.raises(ValueError, match=argument):
        make(**options)


@pytest.mark.parametrize(
    "options",
    [
        # log-weights are added, so one below 0 makes an arc cost more
        {"semiring": "max_sum", "epsilon_scale": -0.5, "self_loop_scale": -1.0},
        {"semiring": "log", "epsilon_scale": -0.5, "self_loop_scale": -1.0},
        {"semiring": "sum_product", "epsilon_scale": 0.0, "self_loop_scale": 0.5},
        {"semiring": "sum_product", "encoding": "identity", "epsilon_scale": -0.5},
        {"semiring": "boolean", "epsilon_scale": 0.0, "self_loop_scale": 1},
        {"semiring": "boolean", "dropout_on": "scores"},
        {"semiring": "max_sum", "dropout": 0.1, "dropout_on": "scores"},
        {"bias_scale": 0.0},
    ],
)
def test_scales_and_dropout_that_mean_something_are_taken(options: dict[str, Any]) -> None:
    assert check(Seq2VecEncoder, {"type": "sopa", "patterns": PATTERNS, **options}) == []
    scores, epsilon = make(**options).arc_scores(torch.randn(4, DIM))
    assert scores.isfinite().all()
    assert epsilon.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout_on": "product"}, 'dropout_on: expected "products" or "scores", found "product"'),
        ({"self_loops": None}, 'self_loops: expected "none" or "state" or "shared", found null'),
        ({"normalization": "layers"}, "found \"layers\" (a string); did you mean 'layer'"),
        ({"bias_scale": -0.1}, "bias_scale: expected a number of at least 0"),
        ({"output_scale": math.inf}, "output_scale: expected a number above 0"),
        ({"dropout": 1.0}, "dropout: expected a number of at least 0 and below 1"),
        ({"patterns": {1: 3}}, "patterns.1"),
        ({"patterns": {3: -1, 4: 2}}, "patterns.3: expected an integer of at least 0"),
    ],
)
def test_values_that_no_option_has_are_refused(options: dict[str, Any], message: str) -> None:
    """By the type hints of the constructor, given by a program; a config's are told once."""
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**options)
    if None not in options.values():
        config = {"type": "sopa", "patterns": PATTERNS, **options}
        (problem,) = check(Seq2VecEncoder, config)
        assert problem.path.split(".")[0] in options


def test_tokens_of_another_dimension_are_refused() -> None:
    encoder = SopaEncoder(input_dim=6, patterns={3: 2})
    with pytest.raises(
        ValueError, match=r"tokens: expected \[batch, tokens, 6\], found \[2, 5, 4\]"
    ):
        encoder(torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))


def test_its_repr_shows_its_patterns() -> None:
    shown = repr(SopaEncoder(300, {3: 1, 6: 10}, self_loops="none"))
    assert "input_dim=300, output_dim=11, patterns={3: 1, 6: 10}, semiring=max_product" in shown


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"encoding: .*; epsilon_scale: "):
        make(encoding="identity", epsilons=False, epsilon_scale=0.5)


@pytest.mark.parametrize("kind", ["sopa", "sopa_released"])
def test_filled_in_configs_build_the_same_encoder(kind: str) -> None:
    config = {"type": kind, "patterns": {"4": 2}, "self_loops": "shared", "dropout": 0.1}
    filled = fill_defaults(Seq2VecEncoder, config)
    assert check(Seq2VecEncoder, filled) == []
    given, again = (Seq2VecEncoder.from_params(each, input_dim=DIM) for each in (config, filled))
    assert given.layout == again.layout
    assert given.options == again.options


def test_the_released_preset_says_what_it_sets() -> None:
    encoder = Seq2VecEncoder.from_params(
        {"type": "sopa_released", "patterns": {"4": 2}}, input_dim=DIM
    )
    assert isinstance(encoder, SopaEncoder)
    assert encoder.layout.boundary_loops
    assert not encoder.layout.final_epsilon
    assert encoder.boundary_width == 3
    assert encoder.options.bias_scale == 0.1
    assert isinstance(encoder.document_vector.norm, nn.Identity)
    assert encoder.document_vector.output == "score"


@pytest.mark.parametrize("semiring", TRAINABLE)
def test_scales_enter_each_arc_once(semiring: str) -> None:
    plain, scaled = (
        make(semiring=semiring, bias_scale=scale, epsilon_scale=eps, self_loop_scale=loop)
        for scale, eps, loop in ((1.0, None, None), (0.5, 0.25, 0.125))
    )
    scaled.load_state_dict(plain.state_dict())
    with torch.no_grad():
        scaled.arcs.bias *= 2
    rows = torch.randn(4, DIM)
    algebra = Semiring.named(semiring)
    (before, epsilon), (after, scaled_epsilon) = (
        [algebra.to_score(each) for each in encoder.arc_scores(rows)] for encoder in (plain, scaled)
    )
    main = plain.layout.num_states - plain.layout.num_patterns
    added = semiring in ("max_sum", "log")
    torch.testing.assert_close(after[:, :main], before[:, :main])
    torch.testing.assert_close(scaled_epsilon, epsilon + 0.25 if added else epsilon * 0.25)
    loops = before[:, main:]
    torch.testing.assert_close(after[:, main:], loops + 0.125 if added else loops * 0.125)


@pytest.mark.parametrize("boundary", [False, True])
def test_shared_self_loops_score_like_the_main_path_times_a_scale(boundary: bool) -> None:
    encoder = make(self_loops="shared", boundary_loops=boundary)
    scores, _ = encoder.arc_scores(torch.randn(3, DIM))
    scale = functional.logsigmoid(encoder.arcs.self_loop_scale)
    main = encoder.layout.num_states - encoder.layout.num_patterns
    for pattern, length in enumerate(encoder.layout.lengths):
        arcs, loops = (columns_of(encoder, kind, pattern) for kind in ("main_path", "self_loop"))
        states = range(length) if boundary else range(1, length - 1)
        assert len(loops) == len(states)
        for state, loop in zip(states, loops, strict=True):
            if state < length - 1:
                expected = scores[:, arcs[state]] + scale[loop - main]
                torch.testing.assert_close(scores[:, loop], expected)
    # Only END loops, which no main-path arc leaves, have weights of their own.
    assert len(encoder.arcs.weight) == main + boundary * encoder.layout.num_patterns


@pytest.mark.parametrize("epsilons", [True, False])
@pytest.mark.parametrize("final_epsilon", [True, False])
@pytest.mark.parametrize("semiring", ["max_product", "max_sum", "sum_product", "log"])
def test_boundary_loops_are_on_just_where_they_can_matter(
    semiring: str, final_epsilon: bool, epsilons: bool
) -> None:
    options = {"semiring": semiring, "final_epsilon": final_epsilon, "epsilons": epsilons}
    options["patterns"] = {5: 2, 3: 2}
    without, with_loops = (
        make(**options, boundary_loops=each, normalization="none").double()
        for each in (False, True)
    )
    with torch.no_grad():
        for pattern in range(len(without.layout.lengths)):
            for kind in ("main_path", "self_loop"):
                ours = columns_of(without, kind, pattern)
                theirs = columns_of(with_loops, kind, pattern)
                theirs = theirs[1:-1] if kind == "self_loop" else theirs
                with_loops.arcs.weight[theirs] = without.arcs.weight[ours]
                with_loops.arcs.bias[theirs] = without.arcs.bias[ours]
            ends = [columns_of(with_loops, "self_loop", pattern)[i] for i in (0, -1)]
            with_loops.arcs.bias[ends] = 3.0
        with_loops.arcs.epsilon.copy_(without.arcs.epsilon)
    tokens, mask = batch_of(9, 8, 12, 7)
    scores = [each(tokens.double(), mask) for each in (without, with_loops)]
    matters = not torch.allclose(*scores)
    assert make(**options).layout.boundary_loops == matters


def test_a_boundary_loop_lets_a_two_state_pattern_match_any_word() -> None:
    """An epsilon and a loop consume a word without the main path: why loops are off by default."""
    encoder = SopaEncoder(1, {2: 1}, boundary_loops=True, output="score")
    assert not SopaEncoder(1, {2: 1}).layout.boundary_loops
    with torch.no_grad():
        encoder.arcs.weight.zero_()
        encoder.arcs.bias.copy_(torch.tensor([-9.0, 2.0, 3.0]))  # main path, START, END
        encoder.arcs.epsilon.fill_(1.0)
    expected = torch.sigmoid(torch.tensor(3.0)) * torch.sigmoid(torch.tensor(1.0))
    score = encoder(torch.zeros(1, 1, 1), torch.ones(1, 1))
    torch.testing.assert_close(score, expected.reshape(1, 1))


def test_boundary_tokens_are_zero_vectors_around_each_document() -> None:
    tokens, mask = batch_of(4, 1, 0)
    wrapped = functional.pad(tokens * mask[..., None], (0, 0, 4, 4))
    lengths = mask.sum(dim=1) + 8
    expected = make()(wrapped, torch.arange(12) < lengths[:, None])
    torch.testing.assert_close(make(boundary_tokens=True)(tokens, mask), expected)
    packed = make(boundary_tokens=True).forward_packed(*pack(tokens, mask))
    torch.testing.assert_close(packed, expected)


def test_marked_boundary_tokens_are_unit_vectors_one_on_each_side() -> None:
    tokens, mask = batch_of(4, 1, 0)
    before = torch.full((DIM,), DIM**-0.5)
    after = before * torch.tensor([(-1.0) ** place for place in range(DIM)])
    texts = [tokens[0], tokens[1, :1], tokens[2, :0]]
    wrapped = [torch.cat([before[None], text, after[None]]) for text in texts]
    expected = torch.cat(
        [make()(each[None], torch.ones(1, len(each), dtype=torch.bool)) for each in wrapped]
    )
    torch.testing.assert_close(make(boundary_tokens="marked")(tokens, mask), expected)
    assert before.norm() == pytest.approx(1) == after.norm()


def test_a_dropped_arc_scores_a_token_as_a_zero_vector() -> None:
    encoder = make(dropout=0.5)
    rows = torch.randn(50, DIM)
    scores, _ = encoder.arc_scores(rows)
    products = functional.linear(rows, encoder.arcs.weight)
    dropped = functional.logsigmoid(encoder.arcs.bias).expand_as(scores)
    kept = functional.logsigmoid(2 * products + encoder.arcs.bias)
    is_dropped, is_kept = scores.isclose(dropped), scores.isclose(kept)
    assert (is_dropped | is_kept).all()
    assert 0.4 < is_dropped.float().mean() < 0.6
    encoder.eval()
    torch.testing.assert_close(
        encoder.arc_scores(rows)[0], functional.logsigmoid(products + encoder.arcs.bias)
    )


def test_dropout_makes_sure_matches_only_when_asked_to() -> None:
    rows = torch.randn(50, DIM)
    for dropout_on, expected in (("products", False), ("scores", True)):
        scores, _ = make(dropout=0.5, dropout_on=dropout_on).arc_scores(rows)
        assert bool((scores == 0).any()) == expected


@pytest.mark.parametrize("normalization", ["none", "layer", "batch"])
def test_normalization_and_activation_of_the_document_vector(normalization: str) -> None:
    tokens, mask = batch_of(9, 8, 7)
    raw = make(normalization="none")(tokens, mask)
    expected = {
        "none": raw,
        "layer": (raw - raw.mean(1, keepdim=True)) / raw.std(1, correction=0, keepdim=True),
        "batch": (raw - raw.mean(0)) / raw.std(0, correction=0),
    }[normalization]
    ours = make(normalization=normalization)(tokens, mask)
    torch.testing.assert_close(ours, expected, rtol=1e-2, atol=1e-2)
    ours = make(normalization=normalization, activation="relu")(tokens, mask)
    torch.testing.assert_close(ours, expected.relu(), rtol=1e-2, atol=1e-2)


def test_one_document_can_be_normalized_in_training() -> None:
    assert make(normalization="batch")(*batch_of(4)).isfinite().all()


def test_parameter_counts() -> None:
    """The paper's 255K for SST are these patterns and an MLP of 25: 70·25 + 25 + 2·25 + 2."""
    encoder = SopaEncoder(300, {6: 20, 5: 20, 4: 10, 3: 10, 2: 10})
    counts = encoder.parameter_counts()
    assert counts["released"] == 255_017 - 1_827
    assert counts["formula"] == 603 * (120 + 100 + 40 + 30 + 20)
    # Main path d - 1, self-loops d - 2, epsilons d - 1.
    assert counts["stored"] == sum(
        n * (301 * (2 * d - 3) + d - 1) for d, n in {6: 20, 5: 20, 4: 10, 3: 10, 2: 10}.items()
    )
    assert counts["stored"] == sum(each.numel() for each in encoder.arcs.parameters())


def test_initial_weights_are_directions() -> None:
    encoder = make(patterns={6: 40}, bias_scale=0.1)
    norms = encoder.arcs.weight.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    assert 0.05 < (encoder.arcs.bias * 0.1).std() < 0.2


# Numbers


@pytest.mark.parametrize(
    ("semiring", "length"),
    [("max_product", 10_000), ("max_sum", 10_000), ("sum_product", 1_500), ("log", 1_500)],
)
def test_long_documents(semiring: str, length: int) -> None:
    """With gradients, and beside a document of one word; sums take the slow way, so fewer words."""
    encoder = SopaEncoder(2, {3: 1, 2: 1}, semiring=semiring, normalization="none")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, 2, generator=generator)
    index = torch.randint(0, 50, (length + 1,), generator=generator)
    vectors = encoder.forward_packed(rows, index, torch.tensor([0, length, length + 1]))
    assert vectors.isfinite().all()
    vectors.sum().backward()
    assert all(each.grad.isfinite().all() for each in encoder.parameters())
    assert encoder.arcs.weight.grad.any()


def test_products_of_many_arcs_do_not_underflow() -> None:
    """200 arcs at probability 1e-4 each: e^-1842, far below the smallest float."""
    encoder = SopaEncoder(
        1, {201: 1}, epsilons=False, self_loops="none", output="log_score", normalization="none"
    )
    with torch.no_grad():
        encoder.arcs.weight.zero_()
        encoder.arcs.bias.fill_(-9.2103)
    score = encoder(torch.zeros(1, 230, 1), torch.ones(1, 230))
    torch.testing.assert_close(score, torch.tensor([[200 * -9.2104]]), rtol=1e-4, atol=0)


def test_precisions() -> None:
    tokens, mask = batch_of(7, 3)
    expected = make().double()(tokens.double(), mask)
    assert expected.dtype == torch.float64
    torch.testing.assert_close(make()(tokens, mask).double(), expected, rtol=1e-5, atol=1e-5)
    # Half-precision vectors into an encoder in float32, and everything in half precision.
    mixed = make()(tokens.bfloat16(), mask)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed.double(), expected, rtol=0.05, atol=0.05)
    half = make().bfloat16()
    vectors = half(tokens.bfloat16(), mask)
    assert vectors.dtype == torch.bfloat16
    torch.testing.assert_close(vectors.double(), expected, rtol=0.1, atol=0.1)
    assert half.pattern_scores(*pack(tokens.bfloat16(), mask)).dtype == torch.float32
    vectors.sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert make()(tokens, mask).isfinite().all()


def test_gradients_by_finite_differences() -> None:
    encoder = make(patterns={4: 1, 2: 1}, semiring="log").double()
    tokens, mask = batch_of(4, 2)
    rows, index, offsets = pack(tokens.double(), mask)
    rows = rows.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda rows: encoder.forward_packed(rows, index, offsets), rows, atol=1e-6
    )


def test_an_encoder_survives_meta_device_copies_and_pickling() -> None:
    """What `from_pretrained`, DDP and worker processes do with it."""
    tokens, mask = batch_of(7, 1)
    for options in ({"self_loops": "shared", "boundary_loops": True}, {"semiring": "max_sum"}):
        encoder = make(**options)
        with torch.device("meta"):
            empty = SopaEncoder(DIM, PATTERNS, **options)
        empty.load_state_dict(encoder.state_dict(), assign=True)
        for each in (empty, copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
            assert torch.equal(each(tokens, mask), encoder(tokens, mask))


# Compilation


# what torch 2.8 needs for a graph that packs a mask, and later versions have by themselves
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_compiles_as_one_graph_with_length_left_dynamic() -> None:
    encoder = make(boundary_tokens=True)
    compiled = torch.compile(encoder, dynamic=True, fullgraph=True, backend="aot_eager")
    for lengths in ((7, 3, 0), (40, 2), (5, 5, 5, 5, 300)):
        tokens, mask = batch_of(*lengths)
        grads = []
        for each in (encoder, compiled):
            encoder.zero_grad()
            vectors = each(tokens, mask)
            vectors.square().sum().backward()
            grads.append([parameter.grad for parameter in encoder.parameters()])
        torch.testing.assert_close(vectors, encoder(tokens, mask))
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("normalization", ["none", "layer", "batch"])
def test_exports_with_batch_and_length_left_dynamic(normalization: str) -> None:
    encoder = make(boundary_tokens=True, normalization=normalization).eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    shapes = {0: batch, 1: length}
    program = torch.export.export(encoder, batch_of(7, 3), dynamic_shapes=(shapes, shapes))
    calls = [node for node in program.graph.nodes if "sopa" in str(node.target)]
    assert len(calls) == 1
    for lengths in ((7, 3), (1,), (300, 0, 2, 2), (0, 4)):
        tokens, mask = batch_of(*lengths)
        torch.testing.assert_close(program.module()(tokens, mask), encoder(tokens, mask))


def test_encoders_and_automata_need_torch_alone() -> None:
    """What other people's pipelines reuse loads none of the training stack, and no kernel yet."""
    program = (
        "import sys, sopa_plugin.encoders, sopa_plugin.wfsa\n"
        "heavy = {'datasets', 'transformers', 'accelerate', '_jsonnet', 'tokenizers'}\n"
        "heavy |= {'numba', 'triton'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr
