"""SoPa without self-loops and epsilons is a max-pooled CNN: converters both ways (section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import cast

import torch
from torch import nn

from sopa_plugin.encoders.cnn import CnnEncoder
from sopa_plugin.encoders.sopa import SopaEncoder
from sopa_plugin.encoders.sopa_layers import Activation
from sopa_plugin.wfsa import Layout


def from_convolutions(
    convolutions: Sequence[nn.Conv1d], activation: Activation = "none"
) -> SopaEncoder:
    """The encoder that equals max-pooling over `convolutions`.

    A filter of window w becomes a pattern of w + 1 states.
    Documents shorter than the window, over which nothing can be pooled, start at a score of 0.

    Raises:
        ValueError: a convolution pads, skips, dilates or groups, or windows do not ascend, so that
            patterns (sorted by length) would stand in another order.
    """
    windows = [convolution.kernel_size[0] for convolution in convolutions]
    if not windows or windows != sorted(set(windows)):
        raise ValueError(f"expected convolutions of different, ascending windows; found {windows}")
    for convolution in convolutions:
        plain = (convolution.stride, convolution.dilation, convolution.groups) == ((1,), (1,), 1)
        if not plain or convolution.padding not in ((0,), "valid"):
            raise ValueError(f"a soft pattern cannot pad, skip, dilate or group: {convolution}")
    first = convolutions[0]
    encoder = SopaEncoder(
        first.in_channels,
        {each.kernel_size[0] + 1: each.out_channels for each in convolutions},
        semiring="max_sum",
        encoding="identity",
        self_loops="none",
        epsilons=False,
        normalization="none",
        activation=activation,
    ).to(first.weight)
    with torch.no_grad():
        encoder.arcs.bias.zero_()
        assert encoder.document_vector.no_match is not None
        encoder.document_vector.no_match.zero_()
        start = 0
        for convolution in convolutions:
            rows = _arc_rows(encoder.layout, start, convolution.out_channels)
            for i, row in enumerate(rows):
                encoder.arcs.weight[row] = convolution.weight[:, :, i]
            if convolution.bias is not None:
                encoder.arcs.bias[rows[0]] = convolution.bias
            start += convolution.out_channels
    return encoder


def _arc_rows(layout: Layout, first: int, count: int) -> list[slice]:
    """Where the weights of each main-path arc are, of `count` patterns of one length."""
    arcs = layout.main_path[: layout.lengths[first] - 1]
    return [slice(arc.origin + first, arc.origin + first + count) for arc in arcs]


def to_convolutions(encoder: SopaEncoder) -> list[nn.Conv1d]:
    """One convolution for each pattern length, which max-pooled gives the encoder's numbers.

    That is, for documents of at least the window's length, with boundary tokens where the encoder
    has them, before activation; `output_scale` is in its weights and biases.

    Raises:
        ValueError: the encoder does something that a max-pooled CNN cannot.
    """
    layout, options = encoder.layout, encoder.options
    reasons = {
        f"semiring '{options.semiring}'": options.semiring != "max_sum",
        f"encoding '{options.encoding}'": options.encoding != "identity",
        "self-loops": layout.self_loops,
        "epsilons": layout.epsilons,
        "boundary tokens": encoder.marked
        or encoder.boundary_width not in (0, layout.max_length - 2),
        "normalization": not isinstance(encoder.document_vector.norm, nn.Identity),
    }
    found = [name for name, present in reasons.items() if present]
    if found:
        raise ValueError(
            f"this encoder is no max-pooled CNN: it has {', '.join(found)}; a CNN is max_sum over "
            "identity without self-loops, epsilons, boundary tokens and normalization"
        )
    # What scores are multiplied by, above 0, passes through the maximum.
    scale = encoder.document_vector.scale
    weight = encoder.arcs.weight.detach() * scale
    bias = encoder.arcs.bias.detach() * options.bias_scale * scale
    convolutions = []
    for length, group in groupby(range(layout.num_patterns), key=layout.lengths.__getitem__):
        first, *others = group
        rows = _arc_rows(layout, first, 1 + len(others))
        convolution = nn.Conv1d(encoder.input_dim, 1 + len(others), length - 1).to(weight)
        convolution.weight = nn.Parameter(torch.stack([weight[row] for row in rows], dim=2))
        convolution.bias = nn.Parameter(torch.stack([bias[row] for row in rows]).sum(dim=0))
        convolutions.append(convolution)
    return convolutions


def from_cnn(cnn: CnnEncoder) -> tuple[SopaEncoder, list[int]]:
    """The `sopa` encoder that equals a `cnn` encoder, in evaluation, and the order of its numbers.

    Patterns stand by length and filters by `window_sizes` as given: pattern p is number
    `columns[p]` of the CNN's document vector, so `sopa(...) == cnn(...)[:, columns]`.
    """
    count, windows = cnn.num_filters, cnn.window_sizes
    places = sorted(range(len(windows)), key=windows.__getitem__)
    columns = [place * count + i for place in places for i in range(count)]
    convolutions = [cast(nn.Conv1d, cnn.convolutions[place]) for place in places]
    encoder = from_convolutions(convolutions, activation="relu").train(cnn.training)
    encoder.boundary_width = cnn.boundary_width
    return encoder, columns


def to_cnn(encoder: SopaEncoder) -> CnnEncoder:
    """The `cnn` encoder with the document vectors of a `sopa` encoder, in evaluation.

    Raises:
        ValueError: the encoder does something that the `cnn` cannot: see `to_convolutions`;
            or it has no ReLU, a score above 0 for no match, or different numbers of patterns.
    """
    convolutions = to_convolutions(encoder)
    no_match = encoder.document_vector.no_match
    if encoder.document_vector.activation != "relu":
        raise ValueError("the cnn encoder has a ReLU after pooling: expected activation 'relu'")
    if no_match is not None and bool((no_match > 0).any()):
        raise ValueError("the cnn encoder scores documents shorter than a window 0, not above")
    counts = {convolution.out_channels for convolution in convolutions}
    if len(counts) > 1:
        raise ValueError(f"the cnn encoder has equally many filters of each window; found {counts}")
    windows = tuple(convolution.kernel_size[0] for convolution in convolutions)
    wrapped = encoder.boundary_width > 0
    cnn = CnnEncoder(encoder.input_dim, counts.pop(), windows, boundary_tokens=wrapped)
    cnn = cnn.to(encoder.arcs.weight)
    cnn.convolutions = nn.ModuleList(convolutions)
    return cnn.train(encoder.training)
