"""Acting on a reading: patterns silenced, or held at a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.interpret.leave_one_out import Replacement
from sopa_plugin.interpret.subject import ModelSubject

EDITS = "edits"
"""Key of the `sopa_plugin` entry of `config.json` that records what was edited."""

Edits = dict[str, float | str]
"""By pattern, the number of the document vector that it is held at, or "no_match"."""


def silence(
    subject: ModelSubject,
    names: Sequence[str],
    replacement: Replacement = "no_match",
    means: Tensor | None = None,
) -> Edits:
    """Lets patterns tell nothing, in place; what was done, by name.

    Arguments:
        subject: the model.
        names: the patterns.
        replacement: as in `LeaveOneOut`: `no_match` makes the patterns match nothing (their first
            arcs score zero), the others hold their scores in the head.
        means: means of the document vector, for `mean`.

    Raises:
        UserError: There is no such pattern, it is held already, means are missing, or no arc of
            this encoder can score zero.
    """
    if not names:
        return {}
    numbers = [subject.number(name) for name in names]
    if replacement == "no_match" and subject.encoder is subject.model.encoder:
        _refuse_held(subject, names)
        for number in numbers:
            _block(subject.encoder, number)
        return _record(subject, dict.fromkeys(names, "no_match"))
    if replacement != "mean":
        zeros = subject.encoder.document_vector.of_zero()
        return hold(subject, {name: float(zeros[subject.number(name)]) for name in names})
    if means is None:
        raise UserError("replacement 'mean' needs a data set to take the mean over")
    values = [float(means[subject.columns[number]]) for number in numbers]
    return hold(subject, dict(zip(names, values, strict=True)))


def _block(encoder: SopaEncoder, pattern: int) -> None:
    """Gives both arcs out of START the semiring's zero, so that no path leads to END."""
    arcs, layout, options = encoder.arcs, encoder.layout, encoder.options
    if not options.bias_scale > 0:
        raise UserError("this encoder's biases count for nothing: take replacement zero or mean")
    # A sigmoid of -inf is 0, its logarithm -inf: mostly that is the semiring's zero.
    if float(options.encode(torch.tensor(float("-inf")))) != options.algebra.zero:
        raise UserError(
            f"no arc can be blocked in semiring '{options.semiring}' over encoding "
            f"'{options.encoding}': take replacement zero or mean"
        )
    with torch.no_grad():
        main = layout.main_path[0]
        arcs.weight[main.start + pattern - main.first_pattern] = 0.0
        arcs.bias[main.start + pattern - main.first_pattern] = float("-inf")
        if layout.epsilons:
            epsilon = layout.epsilon_arcs[0]
            arcs.epsilon[epsilon.start + pattern - epsilon.first_pattern] = float("-inf")


def hold(subject: ModelSubject, values: Mapping[str, float]) -> Edits:
    """Holds patterns at constant values, in place, in the head's first layer; what was done.

    A number of the document vector that is always v adds the constant v · w to each unit of a
    linear layer: its weights w go into the layer's bias. So the edited model has the same parts,
    runs wherever the model ran, and no pattern that is held can change a prediction.

    Raises:
        UserError: There is no such pattern, it is held already, a value is too large, or the head
            does not begin with a linear layer.
    """
    if not values:
        return {}
    _refuse_held(subject, values)
    held = {subject.columns[subject.number(name)]: value for name, value in values.items()}
    head = subject.model.head
    layer = next((each for each in head.modules() if isinstance(each, nn.Linear)), None)
    size = subject.model.encoder.get_output_dim()
    if layer is None or layer.in_features != size or layer.bias is None:
        raise UserError(f"cannot hold a pattern in a {type(head).__name__}: {_EXPECTED}")
    columns = torch.tensor(list(held), device=layer.weight.device)
    constants = torch.tensor(list(held.values()), dtype=torch.float64).to(layer.weight)
    for (name, value), finite in zip(values.items(), constants.isfinite().tolist(), strict=True):
        if not finite:
            raise UserError(
                f"{name} cannot be held at {value:g}: too large for {layer.weight.dtype}"
            )
    before = [each.detach().clone() for each in (layer.weight, layer.bias)]
    with torch.no_grad():
        # Numbers as large as scores get, to see that the head uses them in that layer alone.
        probe = torch.randn(16, size, generator=torch.Generator().manual_seed(0)).to(layer.weight)
        wanted = probe.clone()
        wanted[:, columns] = constants
        expected = subject.logits(wanted)
        layer.bias.add_(layer.weight[:, columns] @ constants)
        layer.weight[:, columns] = 0.0
        if not torch.allclose(subject.logits(probe), expected, rtol=1e-4, atol=1e-4):
            layer.weight.copy_(before[0])
            layer.bias.copy_(before[1])
            raise UserError(f"cannot hold a pattern in a {type(head).__name__}: {_EXPECTED}")
    return _record(subject, values)


def _refuse_held(subject: ModelSubject, names: Iterable[str]) -> None:
    """Raises `UserError` where the head no longer sees one of the patterns."""
    edits: Edits = (subject.model.config.sopa_plugin or {}).get(EDITS, {})
    for name in names:
        if isinstance(edits.get(name), int | float):
            raise UserError(f"{name} is held at {edits[name]:g} already: edit the original model")


def _record(subject: ModelSubject, edits: Mapping[str, float | str]) -> Edits:
    """Notes edits in the model's config, which is saved with it."""
    record = dict(subject.model.config.sopa_plugin or {})
    record[EDITS] = {**record.get(EDITS, {}), **edits}
    subject.model.config.sopa_plugin = record
    return dict(edits)


_EXPECTED = "expected a head whose first layer is linear, with a bias, and sees all scores"
