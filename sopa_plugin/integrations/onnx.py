"""ONNX: a compiled classifier as a graph, from word ids to logits (`sopa_plugin[onnx]`).

The recurrence is a `Scan` over tokens, written node by node: no exporter has a part in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

from sopa_plugin import __version__
from sopa_plugin.compiled import CompiledClassifier
from sopa_plugin.compiled.classifier import HEADS, NORM_EPSILON
from sopa_plugin.errors import UserError
from sopa_plugin.wfsa.layout import patterns_of_rules
from sopa_plugin.wfsa.reference import columns_of

OPSET = 18
"""The version of ONNX's operators."""

_FLOOR = np.float32(-1e30)  # subtracted from two logarithms of 0 it leaves what exp takes to 0


class _Graph:
    """Nodes of a graph (or of a `Scan`'s body), called by their operators; values by their names.

    Arguments:
        prefix: of all names, so that a body may use values of the graph around it.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self.nodes, self.constants = prefix, list[Any](), list[Any]()

    def __call__(
        self, operator: str, *inputs: Any, outputs: Sequence[str] = (), **more: Any
    ) -> str:
        """Adds a node, of which arrays among the inputs become constants; its (last) output."""
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        found = [*outputs] or [f"{self.prefix}{len(self.nodes)}"]
        self.nodes.append(helper.make_node(operator, names, found, **more))
        return found[-1]

    def build(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> GraphProto:
        """The whole graph, from values to values `{name: (type, shape)}`."""
        given, made = (
            [helper.make_tensor_value_info(name, *each) for name, each in values.items()]
            for values in (inputs, outputs)
        )
        return helper.make_graph(self.nodes, f"{self.prefix}sopa", given, made, self.constants)

    def gather(self, values: str, columns: Any) -> Any:
        """These columns of `values [B, N]`."""
        return self("Gather", values, np.array(columns, np.int64), axis=1)

    def _constant(self, value: Any) -> str:
        name = f"{self.prefix}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name


def to_onnx(compiled: CompiledClassifier) -> ModelProto:
    """The graph of a compiled classifier.

    Inputs are `input_ids` and `attention_mask`, int64 `[batch, tokens]`, real tokens first, as the
    saved tokenizer gives them; the output is `logits [batch, labels]`. The names of the classes are
    in its metadata under `labels`, as JSON.

    Raises:
        UserError: the head is neither `linear` nor `mlp`, or unknown words have n-grams.
    """
    settings = compiled.settings
    if settings.head_type not in HEADS:
        raise UserError(f"ONNX: the head is {settings.head_type!r}; expected linear or mlp")
    if "unknown.ngrams" in compiled.weights:
        raise UserError(
            "ONNX: the model tells unknown words apart by n-grams, which the graph does not take; "
            "train with embedder.ngram_buckets 0"
        )
    graph, width = _Graph(""), settings.boundary_width
    before, behind = (np.full((1, 1), row, np.int64) for row in settings.boundary_places)
    mask = graph("Cast", "attention_mask", to=TensorProto.BOOL)
    lengths = graph("ReduceSum", graph("Cast", mask, to=TensorProto.INT64), np.array([1]))
    batch = graph("Shape", mask, start=0, end=1)

    def wide(value: Any, columns: int) -> Any:
        return graph("Expand", value, graph("Concat", batch, np.array([columns]), axis=0))

    # One column more than there are tokens: onnxruntime divides by the length of a scan.
    ids = graph("Where", mask, "input_ids", behind) if width else "input_ids"
    ids = graph("Concat", wide(before, width), ids, wide(behind, width + 1), axis=1)
    mask = graph("Concat", wide([[True]], 2 * width), mask, wide([[False]], 1), axis=1)
    body, state, best = _recurrence(compiled)
    inputs = wide(state, state.size), wide(best, best.size), ids, mask
    made = {"body": body, "num_scan_inputs": 2, "scan_input_axes": [1, 1]}
    scores = graph("Scan", *inputs, outputs=["states", "scores"], **made)
    logits = _document_vectors(graph, compiled, scores)
    for number, layer in enumerate(HEADS[settings.head_type]):
        weight, bias = (compiled.weights[f"head.{layer}.{each}"] for each in ("weight", "bias"))
        logits = graph("Gemm", graph("Relu", logits) if number else logits, weight, bias, transB=1)
    empty = graph("Equal", lengths, np.array(0))
    graph("Where", empty, compiled.class_log_prior, logits, outputs=["logits"])
    tokens, opset = (TensorProto.INT64, ["batch", "tokens"]), [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        graph.build(
            {"input_ids": tokens, "attention_mask": tokens},
            {"logits": (TensorProto.FLOAT, ["batch", len(compiled.labels)])},
        ),
        opset_imports=opset,
        ir_version=helper.find_min_ir_version_for(opset),
        producer_name="sopa_plugin",
        producer_version=__version__,
    )
    helper.set_model_props(model, {"labels": json.dumps(compiled.labels)})
    return model


def _recurrence(compiled: CompiledClassifier) -> tuple[GraphProto, Any, Any]:
    """What one token does (see `sopa_plugin.wfsa.reference`), the first states and best scores.

    From scores of states `[B, S]` and the best at END so far `[B, K]` to those after it.
    """
    graph, layout, semiring = _Graph("token."), compiled.layout, compiled.settings.semiring
    zero, one = (np.float32(n) for n in ((0, 1) if semiring == "sum_product" else (-np.inf, 0)))

    def times(a: Any, b: Any) -> str:
        return graph("Mul" if semiring == "sum_product" else "Add", a, b)

    def plus(a: Any, b: Any) -> str:
        if semiring != "log":
            return graph("Add" if semiring == "sum_product" else "Max", a, b)
        most = graph("Max", a, b, _FLOOR)
        shares = (graph("Exp", graph("Sub", each, most)) for each in (a, b))
        return graph("Add", most, graph("Log", graph("Add", *shares)))

    # An arc that a state has not scores zero: it is in a column more.
    columns, k, s = columns_of(layout), layout.num_patterns, layout.num_states
    previous, ends = np.array([*range(k), *columns.previous]), columns.ends
    main = [layout.num_scores] * k + list(range(s - k))
    table = np.pad(compiled.table, ((0, 0), (0, 1)), constant_values=zero)
    epsilon = np.full(s, zero)
    epsilon[k if layout.epsilons else s :] = compiled.epsilon
    start = np.where(np.arange(s) < k, one, zero)
    # Only two states can match no token at all, by the epsilon from START to END.
    empty = layout.empty_matches & (np.array(layout.lengths) == 2)
    best = np.where(empty, epsilon[ends], zero)

    scores = graph("Gather", table, "id")
    reached = plus("state", times(graph.gather("state", previous), epsilon))
    by_main = times(graph.gather(reached, previous), graph.gather(scores, main))
    moved = plus(by_main, times(reached, graph.gather(scores, columns.loops)))
    after = graph("Identity", plus(moved, start), outputs=["state_after"])
    read = after if layout.empty_matches else moved
    at_end = graph.gather(read, ends)
    if layout.final_epsilon:
        at_end = plus(at_end, times(graph.gather(read, previous[ends]), epsilon[ends]))
    is_token = graph("Unsqueeze", "is_token", np.array([1]))
    graph("Where", is_token, plus("best", at_end), "best", outputs=["best_after"])
    states, bests = ((TensorProto.FLOAT, ["batch", each.size]) for each in (start, best))
    token = {"id": (TensorProto.INT64, ["batch"]), "is_token": (TensorProto.BOOL, ["batch"])}
    given, made = {"state": states, "best": bests}, {"state_after": states, "best_after": bests}
    return graph.build(given | token, made), start, best


def _document_vectors(graph: _Graph, compiled: CompiledClassifier, scores: str) -> str:
    """As `CompiledClassifier` computes them."""
    of = compiled.weights_of("document_vector.")
    values = graph("Exp", scores) if compiled.settings.exponential else scores
    if rules := patterns_of_rules(compiled.settings.rules):
        values, otherwise = graph("Div", values, of["sure"]), rules.pop(-1, [])
        of_rules = [pattern for patterns in rules.values() for pattern in patterns]
        others = [pattern for pattern in range(len(of["sure"])) if pattern not in of_rules]
        parts = [graph.gather(values, others)]
        for patterns in rules.values():
            some = graph.gather(values, patterns)
            best = graph("Equal", graph("ArgMax", some, axis=1), np.arange(len(patterns)))
            parts.append(graph("Mul", some, graph("Cast", best, to=TensorProto.FLOAT)))
        values = graph("Concat", *parts, axis=1)
        values = graph.gather(values, np.argsort([*others, *of_rules]))
        best = graph("ReduceMax", graph.gather(values, of_rules), np.array([1]))
        none = graph("Sub", np.float32(1), graph("Min", best, np.float32(1)))
        values = graph("Where", np.isin(np.arange(len(of["sure"])), otherwise), none, values)
    values = graph("Sub", values, of["halves"])
    if "no_match" in of:
        values = graph("Where", graph("IsInf", scores), of["no_match"], values)
    values = graph("Mul", values, of["scales"])
    norm = compiled.weights_of("document_vector.norm.")
    if "running_mean" in norm:
        factor = norm["weight"] / np.sqrt(norm["running_var"] + NORM_EPSILON)
        values = graph("Mul", graph("Sub", values, norm["running_mean"]), factor)
        values = graph("Add", values, norm["bias"])
    elif norm:
        weight, bias, epsilon = norm["weight"], norm["bias"], float(NORM_EPSILON)
        values = graph("LayerNormalization", values, weight, bias, epsilon=epsilon)
    return str(graph("Relu", values) if compiled.settings.relu else values)
