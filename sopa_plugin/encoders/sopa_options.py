"""What a SoPa encoder can be asked for, and which combinations make no sense."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from sopa_plugin.registry.problems import did_you_mean
from sopa_plugin.wfsa import ArcEncoding, Layout, Semiring
from sopa_plugin.wfsa.operator import at_least_float32

SelfLoops = Literal["none", "state", "shared"]
DropoutOn = Literal["products", "scores"]
Output = Literal["score", "log_score", "excess"]
Normalization = Literal["none", "layer", "batch"]
Activation = Literal["none", "relu"]

_CHOICES = {
    "self_loops": get_args(SelfLoops),
    "dropout_on": get_args(DropoutOn),
    "output": (None, *get_args(Output)),
    "normalization": (None, *get_args(Normalization)),
    "activation": get_args(Activation),
}


@dataclass(frozen=True)
class SopaOptions:
    """How arcs are scored; see `SopaEncoder`, whose arguments these are."""

    semiring: str
    encoding: str
    self_loops: SelfLoops
    epsilon_scale: float | None
    self_loop_scale: float | None
    bias_scale: float
    dropout: float
    dropout_on: DropoutOn

    @property
    def algebra(self) -> Semiring:
        """The semiring itself."""
        return Semiring.named(self.semiring)

    def encode(self, raw: Tensor) -> Tensor:
        """Scores as the semiring holds them, at least in float32, from raw ones."""
        raw = at_least_float32(raw)
        encoding = ArcEncoding.named(self.encoding)
        return encoding.encode_log(raw) if self.algebra.logarithms else encoding.encode(raw)

    @property
    def is_log_sigmoid(self) -> bool:
        """Whether that is the log sigmoid, which fast code knows."""
        return self.encoding == ("sigmoid" if self.algebra.logarithms else "log_sigmoid")

    def constant(self, score: float, like: Tensor) -> Tensor:
        """A fixed score as the semiring holds it."""
        value = math.log(score) if self.algebra.logarithms else score
        return torch.full((), value, dtype=like.dtype, device=like.device)


def loops_can_matter(
    semiring: str, encoding: str, epsilons: bool, final_epsilon: bool, self_loop_scale: float | None
) -> bool:
    """Whether a START or END loop can change the score of a pattern of three states or more.

    Where only the best path counts and no loop adds to a score, a match that starts afresh is never
    worse than one that looped at START, nor one that ends at once than one that loops at END,
    unless END was reached by an epsilon that may not end a match. (In a two-state pattern, a loop
    and an epsilon together match any word at all without its main path, a floor under every
    document like the empty match's; that is no reason to have them.)
    """
    algebra = Semiring.named(semiring)
    one = 1.0 if algebra.logarithms else algebra.one
    costs = ArcEncoding.named(encoding).at_most_one and (
        self_loop_scale is None or self_loop_scale <= one
    )
    return not (algebra.selects and costs and (final_epsilon or not epsilons))


def arcs_start_at_half(semiring: str, encoding: str) -> bool:
    """Whether a path scores near 1/2 for each of its arcs before training."""
    return (semiring, encoding) == ("max_product", "sigmoid")


def problems_of(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every `(argument, message)` that the arguments of `SopaEncoder` rule out together."""
    yield from _pattern_problems(params["patterns"])
    misspelt = list(_choice_problems(params))
    yield from misspelt
    if misspelt:  # what it means beside the others cannot be told
        return
    for key, kind in (("semiring", Semiring), ("encoding", ArcEncoding)):
        name = params.get(key)
        if name is not None and name not in kind.list_available():
            known = kind.list_available()
            near = did_you_mean(name, known)
            near = f"; {near}" if near else ""
            yield key, f"no {key} is called '{name}': expected one of {', '.join(known)}{near}"
            return
    semiring = Semiring.named(params["semiring"])
    encoding = ArcEncoding.named(params.get("encoding") or semiring.default_encoding)
    yield from _semiring_problems(params, semiring, encoding)
    yield from _option_problems(params)


def _choice_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a config's type hints say of configs, for arguments given by a program."""
    for key, choices in _CHOICES.items():
        if key in params and params[key] not in choices:
            names = [each for each in choices if each is not None]
            near = did_you_mean(str(params[key]), names)
            near = f"; {near}" if near else ""
            yield key, f"expected one of {', '.join(names)}; found {params[key]!r}{near}"


def _pattern_problems(patterns: Mapping[Any, int]) -> Iterator[tuple[str, str]]:
    if not patterns or not any(patterns.values()):
        yield "patterns", "expected at least one pattern, as {states: number of patterns}"
    for length, count in patterns.items():
        if int(length) < 2:
            yield "patterns", f"a pattern has at least 2 states, START and END; found {length}"
        if count < 0:
            yield "patterns", f"a number of patterns cannot be negative; found {length}: {count}"


def _semiring_problems(
    params: Mapping[str, Any], semiring: Semiring, encoding: ArcEncoding
) -> Iterator[tuple[str, str]]:
    if encoding.kind not in semiring.accepts:
        fitting = [
            name
            for name in ArcEncoding.list_available()
            if ArcEncoding.named(name).kind in semiring.accepts
        ]
        yield (
            "encoding",
            f"semiring '{params['semiring']}' does not take encoding '{params.get('encoding')}': "
            f"{semiring.reason}; expected one of {', '.join(fitting)}",
        )
    if params.get("output") == "log_score" and not semiring.logarithms:
        yield (
            "output",
            f"semiring '{params['semiring']}' gives no logarithms of its scores; "
            "take output 'score' (semiring 'log' gives the logarithm of sum_product's)",
        )
    name = params.get("encoding") or semiring.default_encoding
    if params.get("output") == "excess" and not arcs_start_at_half(params["semiring"], name):
        yield (
            "output",
            "'excess' is over the score of arcs at one half, where sigmoids start: it goes with "
            "semiring 'max_product' and encoding 'sigmoid'; take output 'score'",
        )
    yield from _scale_problems(params, semiring, encoding)
    dropped = bool(params.get("dropout")) and params.get("dropout_on") == "scores"
    if dropped and semiring.accepts == {"truth"}:
        yield (
            "dropout_on",
            f"semiring '{params['semiring']}' has true and false alone, and dropout on scores "
            "makes those that it keeps larger than true; take dropout_on 'products', or dropout 0",
        )


def _scale_problems(
    params: Mapping[str, Any], semiring: Semiring, encoding: ArcEncoding
) -> Iterator[tuple[str, str]]:
    """What scales of arcs cannot be: weights are positive, log-weights of either sign."""
    for key in ("epsilon_scale", "self_loop_scale"):
        scale = params.get(key)
        if scale is None:
            continue
        if not math.isfinite(scale):
            yield key, f"expected a finite number, found {scale}"
        elif semiring.logarithms and scale <= 0:
            yield key, f"scores are multiplied by it: expected a number above 0, found {scale}"
        elif semiring.accepts == {"truth"} and scale not in (0, 1):
            yield (
                key,
                f"semiring '{params['semiring']}' has true and false alone: expected 1 or 0, "
                f"found {scale}",
            )
        elif encoding.kind != "log_weight" and scale < 0:
            yield (
                key,
                "scores are multiplied by it, and none is below 0: expected at least 0, "
                f"found {scale}",
            )


def _option_problems(params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    loops, epsilons = params.get("self_loops", "state"), params.get("epsilons", True)
    if loops == "none" and params.get("boundary_loops"):
        yield "boundary_loops", "START and END loops are self-loops, and self_loops is 'none'"
    if loops != "state" and params.get("self_loop_scale") is not None:
        yield "self_loop_scale", f"it scales self-loops of their own; self_loops is '{loops}'"
    if not epsilons and params.get("epsilon_scale") is not None:
        yield "epsilon_scale", "there are no epsilons to scale: epsilons is false"
    if params.get("empty_matches") and not (epsilons and params.get("final_epsilon", True)):
        yield (
            "empty_matches",
            "a match of no token is an epsilon from START to END: it needs epsilons and "
            "final_epsilon",
        )
    if not 0 <= params.get("dropout", 0.0) < 1:
        yield "dropout", f"expected a rate of at least 0 and below 1; found {params['dropout']}"
    scale = params.get("output_scale")
    if scale is not None and not 0 < scale < math.inf:
        yield (
            "output_scale",
            f"scores are multiplied by it: expected a finite number above 0, found {scale}",
        )
    scale = params.get("bias_scale", 1.0)
    if not 0 <= scale < math.inf:
        yield (
            "bias_scale",
            f"biases are multiplied by it: expected a finite number of at least 0, found {scale}",
        )
    if params.get("normalization") == "layer" and sum(params["patterns"].values()) == 1:
        yield "normalization", "layer normalization over a single pattern leaves nothing"


def layout_of(
    patterns: Mapping[Any, int],
    self_loops: bool,
    epsilons: bool,
    boundary_loops: bool,
    final_epsilon: bool,
    empty_matches: bool,
) -> Layout:
    """The layout of `patterns {states: number of patterns}`."""
    lengths = tuple(
        length
        for length, count in sorted((int(length), count) for length, count in patterns.items())
        for _ in range(count)
    )
    return Layout(lengths, self_loops, epsilons, boundary_loops, final_epsilon, empty_matches)
