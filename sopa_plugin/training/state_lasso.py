"""Fewer and shorter patterns: a group lasso over states (Dodge et al., EMNLP 2019, section 3).

There it is for rational RNNs. Here the group of a state is the weights of the main-path arc that
leads to it and those of its self-loop; START, whence every pattern begins, has none. An arc without
weights is not an absent arc: it scores all words alike, as its bias says. So a pattern without that
state finds what it found, and its scores are other multiples: exactly so at either end of a pattern
(but for matches that the document cuts short), nearly so between other states. What the multiples
are is measured on the training texts, and goes into the head's first layer; a pattern without
states tells nothing, and its mean goes into the biases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sopa_plugin.data.batches import Documents
from sopa_plugin.encoders import Seq2VecEncoder, SopaEncoder
from sopa_plugin.errors import TrainingFailed
from sopa_plugin.heads import ClassifierHead

if TYPE_CHECKING:
    from sopa_plugin.models import TextClassifier

GONE = 0.1
"""The norm of a state's weights up to which it is none: a tenth of an arc's at the start in
max-product, a fortieth over sums, whose arcs start longer and want more epochs. Where the penalty
has driven states out, measured on SST in max-product, few norms lie between 0.03 and 1."""

TINY = 1e-12
"""What keeps the gradient of a norm finite where it is 0."""


def reason_against(model: TextClassifier) -> str | None:
    """Why the states of this model cannot be shrunk; None where they can."""
    encoder = model.encoder
    if type(encoder) is not SopaEncoder or encoder.arcs.shared:
        return "needs an encoder 'sopa' whose self_loops are 'state' or 'none'"
    if any(encoder.rules):
        return "the patterns of rules are to stay as they are; leave it out, or model.rules"
    if _first_layer(model.head) is None:
        return f"needs a head that begins with a linear layer; {type(model.head).__name__} does not"
    return None


def penalty(model: TextClassifier) -> Tensor:
    """The group lasso: the sum of all states' norms, of those with a self-loop √2 times as much.

    So it weighs groups by the square root of their size, as Yuan and Lin (2006) do.
    """
    encoder: Any = model.encoder
    states, norms = _groups(encoder)
    arcs = torch.bincount(states, minlength=len(norms))
    start = encoder.layout.states[0].size  # START's come first
    return (norms * arcs.sqrt())[start:].sum()


@torch.no_grad()
def prune(model: TextClassifier, documents: Documents) -> tuple[int, int]:
    """Takes states of next to no weight from a model, in place, and fits its head to that.

    Arguments:
        model: see `reason_against`.
        documents: the training texts.

    Returns:
        How many states there are now, and were before, START and END of each pattern included.

    Raises:
        TrainingFailed: no pattern has a state left.
    """
    old: Any = model.encoder
    layout, (_, norms) = old.layout, _groups(old)
    # of each pattern START, whatever its weights, and the other states that it has still
    left = {
        p: [i for i in range(length) if i == 0 or norms[layout.states[i].origin + p] > GONE]
        for p, length in enumerate(layout.lengths)
    }
    # as a layout has them, the shortest first
    stay = sorted((p for p, states in left.items() if len(states) > 1), key=lambda p: len(left[p]))
    if not stay:
        raise TrainingFailed("no state of any pattern is left: lower trainer.state_lasso")
    before, head = model.document_vectors(documents).double(), model.head.state_dict()
    lengths = Counter(len(left[p]) for p in stay)
    set_patterns(model, {str(states): count for states, count in lengths.items()})
    new: Any = model.encoder
    _copy_arcs(old, new, [(p, left[p]) for p in stay])
    of_patterns = old.document_vector.state_dict()
    for name, each in of_patterns.items():
        of_patterns[name] = each[stay] if len(each.shape) else each
    new.document_vector.load_state_dict(of_patterns)
    after = model.document_vectors(documents).double()
    # shape: [patterns that stay]; least squares of one number each
    centred = after - after.mean(dim=0)
    variance = centred.square().mean(dim=0)
    multiple = (centred * before[:, stay]).mean(dim=0) / variance.where(variance > 0, 1)
    constant = before.mean(dim=0)
    constant[stay] -= multiple * after.mean(dim=0)
    name = _first_layer(model.head)
    weight, bias = head[f"{name}.weight"].double(), head[f"{name}.bias"]
    head |= {f"{name}.weight": weight[:, stay] * multiple, f"{name}.bias": bias + weight @ constant}
    model.head.load_state_dict(head)
    return new.layout.num_states, layout.num_states


def set_patterns(model: TextClassifier, patterns: dict[str, int]) -> None:
    """Gives a model a new encoder with these `patterns`, else as it was, and a new head for it."""
    encoder, config = model.encoder, model.config
    config.encoder = {**(config.encoder or {}), "patterns": patterns}
    model.encoder = Seq2VecEncoder.from_params(config.encoder, input_dim=encoder.get_input_dim())
    model.head = ClassifierHead.from_params(
        config.head or {}, input_dim=model.encoder.get_output_dim(), num_labels=len(model.labels)
    )
    model.to_device(str(model.device))
    model.train(model.training)


def _copy_arcs(
    old: SopaEncoder, new: SopaEncoder, sources: Sequence[tuple[int, list[int]]]
) -> None:
    """Gives each pattern of `new` the arcs of a pattern of `old`, and of which of its states."""
    was, now = old.layout, new.layout
    arcs, loops = [], []
    for q, (p, states) in enumerate(sources):
        for j, state in enumerate(states):
            if j:  # the arc that led to it
                arcs.append((now.main_path[j - 1].origin + q, was.main_path[state - 1].origin + p))
            after, before = now.loops[j], was.loops[state]
            if after and before and q >= after.first_pattern:
                loops.append((after.origin + q, before.origin + p))
    for pairs, names in ((arcs + loops, ("weight", "bias")), (arcs, ("epsilon",) * now.epsilons)):
        to, of = map(list, zip(*pairs, strict=True))
        for name in names:
            getattr(new.arcs, name)[to] = getattr(old.arcs, name)[of]


def _groups(encoder: SopaEncoder) -> tuple[Tensor, Tensor]:
    """The state (of S) that the weights of each arc (of R) belong to, and the norm of each state's.

    START's are those of its self-loop, if it has one.
    """
    layout, weight = encoder.layout, encoder.arcs.weight
    states = torch.zeros(layout.num_scores, dtype=torch.long)
    for i, of_state in enumerate(layout.states):
        for block in (layout.main_path[i - 1] if i else None, layout.loops[i]):
            if block is not None:
                patterns = torch.arange(block.first_pattern, layout.num_patterns)
                states[block.columns] = of_state.origin + patterns
    states = states.to(weight.device)
    squares = weight.new_zeros(layout.num_states).index_add(0, states, weight.square().sum(dim=1))
    return states, (squares + TINY).sqrt()


def _first_layer(head: ClassifierHead) -> str | None:
    """The name of the head's first linear layer."""
    layers = (name for name, each in head.named_modules() if isinstance(each, nn.Linear))
    return next(layers, None)
