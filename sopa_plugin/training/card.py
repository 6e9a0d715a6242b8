"""The model card of a run: README.md, as Hugging Face shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sopa_plugin import __version__
from sopa_plugin.models import Model

_TEMPLATE = """\
---
{{ card_data }}
---
{% if is_sample %}**Trained on the embedded sample of sopa_plugin: a demonstration. Its figures \
say nothing about real data.**
{% endif %}
# {{ name }}

A text classifier ({{ parts }}) trained by sopa_plugin {{ version }} on {{ data }}: {{ sizes }}.

Classes: {{ labels }}.

## Figures

| | accuracy | macro-F1 | loss | examples |
|---|---|---|---|---|
{{ rows }}

Parameters: {{ total }}, of which trained: {{ trainable }}. Everything measured is in \
`metrics.json`, the whole config in `experiment.json`.

## Use
{% if plugins %}
Needs the packages {{ plugins }} too.
{% endif %}{% if library_name %}
```python
from transformers import pipeline

import sopa_plugin.models  # makes the model known to transformers

classify = pipeline("text-classification", model="THIS_FOLDER", top_k=None)
classify("a gripping , moving film")
```
{% endif %}
```bash
echo 'a gripping , moving film' | python -m sopa_plugin.predict THIS_FOLDER
```
"""
_SPLITS = {"train": "training", "dev": "validation", "test": "test"}


def model_card(
    name: str,
    data: str,
    is_sample: bool,
    labels: Sequence[str],
    sizes: Mapping[str, int],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
    plugins: Sequence[str],
) -> str:
    """The card as Markdown.

    Arguments:
        name: of the run.
        data: what it was trained on, in words.
        is_sample: whether that is the embedded sample.
        labels: the class names.
        sizes: number of documents by split.
        config: the filled-in config.
        metrics: what `metrics.json` will hold.
        plugins: packages that the model needs.
    """
    from huggingface_hub import ModelCard, ModelCardData

    model = config["model"]
    kind = model.get("type", Model.default_implementation)
    parts = [
        each["type"] for each in model.values() if isinstance(each, Mapping) and "type" in each
    ]
    described = code(kind) + (": " if parts else "") + ", ".join(map(code, parts))
    card = ModelCard.from_template(
        ModelCardData(
            pipeline_tag="text-classification",
            library_name="transformers" if kind == "text_classifier" else None,
            tags=["sopa_plugin", "soft-patterns"],
        ),
        template_str=_TEMPLATE,
        is_sample=is_sample,
        name=plain(name),
        parts=described,
        version=__version__,
        data=plain(data),
        sizes=", ".join(f"{size} {split}" for split, size in sizes.items()),
        labels=", ".join(map(code, labels)),
        rows="\n".join(_row(split, metrics) for split in _SPLITS),
        total=f"{metrics.get('parameters_total', 0):,}",
        trainable=f"{metrics.get('parameters_trainable', 0):,}",
        plugins=", ".join(plugins),
    )
    return f"{str(card).strip()}\n"


def plain(text: str) -> str:
    """Text as Markdown shows it, whatever marks are in it."""
    return re.sub(r"([\\`*_{}\[\]<>#|~&$])", r"\\\1", _printable(text))


def code(text: str) -> str:
    """Text as code in Markdown, in more backticks than are in it."""
    text = _printable(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def _printable(text: str) -> str:
    """Text on one line, without what steers a terminal or turns the direction of writing."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def _row(split: str, metrics: Mapping[str, Any]) -> str:
    prefix, name = _SPLITS[split], split
    if f"best_{prefix}_accuracy" in metrics:
        prefix = f"best_{prefix}"  # the figures of the model that is saved
    if split == "train" and "best_epoch" in metrics:
        name = "train, last epoch"  # training figures are taken as it goes
    keys = [f"{prefix}_{key}" for key in ("accuracy", "macro_f1", "loss")]
    values = [f"{metrics[key]:.4f}" if key in metrics else "–" for key in keys]
    return f"| {name} | {' | '.join(values)} | {metrics.get(f'{prefix}_examples', '–')} |"
