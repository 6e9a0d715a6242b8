"""Acting on a reading: patterns masked, held, added or given other words; what that changes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sopa_plugin.data.tokenizers import normalized
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.encoders.sopa_layers import FIRES
from sopa_plugin.errors import UserError
from sopa_plugin.heads import LinearHead
from sopa_plugin.interpret.leave_one_out import Replacement, held_values
from sopa_plugin.interpret.subject import ModelSubject
from sopa_plugin.registry.problems import did_you_mean
from sopa_plugin.rules.start import (
    boundary_products,
    set_boundary_products,
    settle_votes,
    tests_of,
)
from sopa_plugin.rules.tokens import one_of

EDITS = "edits"
"""Key of the `sopa_plugin` entry of `config.json` that records what was edited."""

Edits = dict[str, float | str]
"""By pattern, the number of the document vector that it is held at, "no_match", or what its arcs
were given."""

SURE = 8.0
"""What an arc scores at least, before the sigmoid, for a word that was put on it, and at most,
negative, for one that was taken from it."""


def mask(
    subject: ModelSubject,
    names: Sequence[str],
    replacement: Replacement = "mean",
    means: Tensor | None = None,
) -> Edits:
    """Lets patterns tell nothing, in place; what was done, by name.

    Arguments:
        subject: the model.
        names: the patterns.
        replacement: as in `LeaveOneOut`: `mean` and `zero` hold the patterns' scores in the head,
            `no_match` makes them match nothing (their first arcs score zero), which takes the
            document vector far from where the head has learnt.
        means: of the document vector, for `mean`; by default those that training saved.

    Raises:
        UserError: There is no such pattern, it is held already, means are missing, or no arc of
            this encoder can score zero.
    """
    if not names:
        return {}
    if replacement == "next":  # to a masked pattern no match is left
        replacement = "mean"
    numbers = {name: subject.number(name) for name in names}
    values = held_values(subject, replacement, subject.means if means is None else means)
    if values is None and subject.encoder is subject.model.encoder:
        _refuse_held(subject, names)
        for number in numbers.values():
            _block(subject.encoder, number)
        return _record(subject, dict.fromkeys(names, "no_match"))
    if values is None:  # a CNN has no arcs to block: a filter over nothing is 0
        values = subject.encoder.document_vector.of_zero()
    return hold(subject, {name: float(values[number]) for name, number in numbers.items()})


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
    column = layout.main_path[0].start + pattern - layout.main_path[0].first_pattern
    with torch.no_grad():
        arcs.weight[column] = 0.0
        arcs.bias[column] = float("-inf")
        if layout.epsilons:
            arcs.epsilon[column] = float("-inf")  # as many as there are main-path arcs


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
    columns = [subject.columns[subject.number(name)] for name in values]
    head, size = subject.model.head, subject.model.encoder.get_output_dim()
    edited = copy.deepcopy(head)
    layer = next((each for each in edited.modules() if isinstance(each, nn.Linear)), None)
    unsuited = UserError(
        f"cannot hold a pattern in a {type(head).__name__}: expected a head whose first layer is "
        "linear, with a bias, and sees all scores"
    )
    if layer is None or layer.in_features != size or layer.bias is None:
        raise unsuited
    constants = torch.tensor(list(values.values()), dtype=torch.float64).to(layer.weight)
    for (name, value), finite in zip(values.items(), constants.isfinite().tolist(), strict=True):
        if not finite:
            raise UserError(
                f"{name} cannot be held at {value:g}: too large for {layer.weight.dtype}"
            )
    with torch.no_grad():
        layer.bias.add_(layer.weight[:, columns] @ constants)
        layer.weight[:, columns] = 0.0
        # Numbers as large as scores get, to see that the head uses them in that layer alone.
        probe = torch.randn(16, size, generator=torch.Generator().manual_seed(0)).to(layer.weight)
        wanted = probe.clone()
        wanted[:, columns] = constants
        if not torch.allclose(edited(probe), head(wanted), rtol=1e-4, atol=1e-4):
            raise unsuited
    head.load_state_dict(edited.state_dict())
    return _record(subject, values)


def add_rule(
    subject: ModelSubject, texts: Sequence[str], text: str, label: str
) -> tuple[ModelSubject, Edits]:
    """A model with one rule more, which has a vote for its label, and what was done.

    Where the rule does not fire the model predicts as before: what its patterns give there on the
    average is taken from the biases (single logits differ by 2 % of a vote).

    Arguments:
        subject: the model, which stays as it is.
        texts: those of the train set, over which averages are taken.
        text: the rule, as `Rules.adding` takes it.
        label: one of the model's.

    Raises:
        UserError: There is no such label, the rule is refused, or the model can have no rules.
    """
    rules = subject.rules.adding(text, label)
    rule, known = rules.rules[-1], subject.labels
    for each in (label, *rule.over):
        if each not in known:
            told = f"the label {each!r} is unknown to the model; expected {', '.join(known)}"
            raise UserError("; ".join(filter(None, [told, did_you_mean(each, known)])))
    model = subject.model.with_rules(rules)
    documents = model.encode_texts(texts)
    vectors = model.document_vectors(documents).cpu()
    settle_votes(model.head.output, model.encoder, vectors, first=len(rules.rules) - 1)
    model.take_means_of(documents)
    added = ModelSubject(model)
    return added, _record(added, {rule.name: f"added for {label}: {rule.text}"})


@torch.no_grad()
def reword(
    subject: ModelSubject,
    texts: Sequence[str],
    name: str,
    forbid: Sequence[str] = (),
    allow: Sequence[str] = (),
    arc: int | None = None,
) -> tuple[ModelSubject, Edits]:
    """A model in which an arc of a pattern takes some words no more, or now takes others.

    Each of the words is asked of tokens as a rule would, so that one feature of token vectors is 1
    for this word alone, known or unknown. Its weight on the arc brings the word's score to ∓`SURE`
    before the sigmoid, if it is not beyond; all other words and arcs score as before.

    Arguments:
        subject: the model, which stays as it is.
        texts: those of the train set, for its means.
        name: the pattern.
        forbid, allow: the words.
        arc: of the main path, from 1; by default, for each word, the one that scores it best.

    Raises:
        UserError: There is no such pattern or arc, the pattern is held or matches nothing, or a
            word is several tokens.
    """
    number = subject.number(name)
    _refuse_held(subject, [name])
    before = edits_of(subject).get(name)
    if before == "no_match":
        raise UserError(f"{name} matches nothing already: edit the original model")
    last = subject.encoder.layout.lengths[number] - 1
    if arc is not None and not 1 <= arc <= last:
        raise UserError(f"{name} has no arc {arc}: expected one of 1 to {last}")
    wanted = dict.fromkeys(forbid, -SURE) | dict.fromkeys(allow, SURE)
    if not wanted or len(wanted) < len([*forbid, *allow]):
        raise UserError("expected words to forbid or to allow, each once")
    for word, tokens in zip(wanted, subject.words(list(wanted)), strict=True):
        if len(tokens) != 1:
            raise UserError(f"expected one word, found {word!r}, which is {len(tokens)} tokens")
    tests = [one_of(frozenset([normalized(subject.model.tokenizer, word)])) for word in wanted]
    rules = subject.rules
    rules = replace(rules, asked=tuple(dict.fromkeys([*rules.asked, *tests])))
    model = subject.model.with_rules(rules)
    first, asked = model.embedder.vectors.get_output_dim(), tests_of(rules)
    arcs, told = model.encoder.arcs, [] if before is None else [str(before)]
    path = [block.origin + number for block in model.encoder.layout.main_path[:last]]
    edited, boundaries = ModelSubject(model), boundary_products(model.encoder)
    for (word, aim), test in zip(wanted.items(), tests, strict=True):
        (vector,) = edited.vectors(edited.read([word]))
        scores = arcs.weight[path] @ vector + arcs.bias[path]
        place = int(scores.argmax()) if arc is None else arc - 1
        lacking = aim - float(scores[place])
        if lacking * aim > 0:
            arcs.weight[path[place], first + asked.index(test)] += lacking
        told.append(f"{'with' if aim > 0 else 'without'} “{word}” on arc {place + 1}")
    if model.encoder.marked:  # by vectors that have something of every dimension
        set_boundary_products(model.encoder, path, boundaries[path])
    model.take_means_of(model.encode_texts(texts))
    return edited, _record(edited, {name: "; ".join(told)})


def refit(subject: ModelSubject, name: str, texts: Sequence[str], gold: Sequence[int]) -> None:
    """Fits what a linear head makes of a pattern, or of all those of a rule, all else fixed.

    Logistic regression on labelled texts, with a pull (L2, as scikit-learn's C = 1) to what the
    weights were. Where a rule does not fire, nothing changes on the average.

    Raises:
        UserError: The head is not linear.
    """
    head: Any = subject.model.head
    if type(head) is not LinearHead:
        raise UserError(f"--refit: expected a linear head, found a {type(head).__name__}")
    numbers = [n for n, rule in enumerate(subject.rules.rules) if rule.name == name][:1]
    of_rule = [n for n, of in enumerate(subject.encoder.rules) if of and of.rule in numbers]
    patterns, documents = of_rule or [subject.number(name)], subject.model.encode_texts(texts)
    read = torch.from_numpy(documents.lengths > 0)  # of an empty one no pattern says anything
    vectors = subject.model.document_vectors(documents)[read].clone()
    labels = torch.tensor(gold)[read].to(vectors.device)
    x, usual = vectors[:, patterns].sum(dim=1, keepdim=True), torch.zeros(1).to(vectors)
    if subject.encoder.rules[patterns[0]] is not None and (x < FIRES).any():
        usual = x[x < FIRES].mean()
    logits = head(vectors).detach()
    change = torch.zeros(len(head.output.bias), 1).to(vectors).requires_grad_()
    optimizer = torch.optim.LBFGS([change], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = logits + (x - usual) @ change.T
        value = functional.cross_entropy(found, labels, reduction="sum") + change.square().sum() / 2
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[arg-type]
    with torch.no_grad():
        head.output.weight[:, patterns] += change
        head.output.bias.sub_(change[:, 0] * usual)


def edits_of(subject: ModelSubject) -> Edits:
    """All that was done to a model, as it was saved with it."""
    found = (subject.model.config.sopa_plugin or {}).get(EDITS)
    return dict(found) if isinstance(found, Mapping) else {}


def _refuse_held(subject: ModelSubject, names: Iterable[str]) -> None:
    """Raises `UserError` where the head no longer sees one of the patterns."""
    edits = edits_of(subject)
    for name in names:
        if isinstance(edits.get(name), int | float):
            raise UserError(f"{name} is held at {edits[name]:g} already: edit the original model")


def _record(subject: ModelSubject, edits: Mapping[str, float | str]) -> Edits:
    """Notes edits in the model's config, which is saved with it."""
    record = dict(subject.model.config.sopa_plugin or {})
    record[EDITS] = {**edits_of(subject), **edits}
    subject.model.config.sopa_plugin = record
    return dict(edits)
