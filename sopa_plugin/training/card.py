"""The model card of a run: README.md, as Hugging Face shows it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sopa_plugin import __version__
from sopa_plugin.data.readers import DatasetReader
from sopa_plugin.models import Model
from sopa_plugin.registry import imported_plugins

_TEMPLATE = """\
---
{{ card_data }}
---
{% if is_sample %}**Trained on the embedded sample of sopa_plugin: a demonstration. Its figures \
say nothing about real data.**
{% endif %}
# {{ name }}

A text classifier ({{ parts }}) trained by sopa_plugin {{ version }} on {{ data }}: {{ sizes }}. \
{% if rules %}It began as the rules of {{ rules }}. {% endif %}\
It gives each text a probability for each class.

Classes: {{ labels }}.

## Figures

{% if not figures %}
None: its texts have no labels.
{% else %}
| | accuracy | macro-F1 | loss | calibration error | examples |
|---|---|---|---|---|---|
{{ rows }}
{% endif %}
{% if classes %}
By class, on the {{ measured }} set:

| class | precision | recall | F1 | examples |
|---|---|---|---|---|
{{ classes }}

The calibration error is how far the probability of an answer is, on average, from the share of \
such answers that are right\
{% if temperature %}; probabilities are scaled by a temperature of {{ temperature }}, fitted on \
the dev set{% endif %}.
{% endif %}

Parameters: {{ total }}, of which trained: {{ trainable }}. Everything measured is in \
`metrics.json`.

## Use

Needs the Python package sopa_plugin{% if plugins %}, and the packages {{ plugins }} with \
`--include-package`{% endif %}: `pip install .` in a clone of its repository. In place of `MODEL` \
put this folder (of a repository of the Hub, what `huggingface_hub.snapshot_download` gives).

```python
import sopa_plugin

model = sopa_plugin.load_model("MODEL")
sopa_plugin.predict_texts(model, [{{ example_python }}])
```
{% if library_name %}
With transformers; where that says that it does not know the model type `sopa_text_classifier`, \
the second import is missing:

```python
from transformers import pipeline

import sopa_plugin.models  # makes the model known to transformers

classify = pipeline("text-classification", model="MODEL", top_k=None)
classify({{ example_python }})
```
{% endif %}
At the shell:

```bash
echo {{ example_shell }} | python -m sopa_plugin.predict MODEL
```
"""
_LONGEST_EXAMPLE = 200
_SPLITS = {"train": "training", "dev": "validation", "test": "test"}


def model_card(
    name: str,
    reader: DatasetReader,
    data: Mapping[str, Any],
    labels: Sequence[str],
    config: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> str:
    """The card as Markdown.

    Arguments:
        name: of the run.
        reader: of the data.
        data: what was read, by split; the first short and plain text of dev is shown.
        labels: the class names.
        config: the filled-in config.
        metrics: what `metrics.json` will hold.
    """
    from huggingface_hub import ModelCard, ModelCardData

    model = config["model"]
    kind = model.get("type", Model.default_implementation)
    parts = [
        each["type"] for each in model.values() if isinstance(each, Mapping) and "type" in each
    ]
    described = code(kind) + (": " if parts else "") + ", ".join(map(code, parts))
    texts = data["dev"]["text"][:100]
    example = next(filter(_is_shown, texts), "a text of your own")
    measured = "test" if "test_per_class" in metrics else "dev"
    by_class = metrics.get(f"{_prefix(measured, metrics)}_per_class", {})
    card = ModelCard.from_template(
        ModelCardData(
            pipeline_tag="text-classification",
            library_name="transformers" if kind == "text_classifier" else None,
            tags=["sopa_plugin", "soft-patterns"],
        ),
        template_str=_TEMPLATE,
        is_sample=reader.is_embedded_sample,
        name=plain(name),
        parts=described,
        version=__version__,
        data=plain(reader.describe()),
        sizes=", ".join(f"{len(each)} {split}" for split, each in data.items()),
        labels=", ".join(map(code, labels)),
        rows="\n".join(_row(split, metrics) for split in _SPLITS),
        figures=any(key.endswith(("_accuracy", "_error")) for key in metrics),
        rules=plain(Path(model["rules"]).name) if model.get("rules") else None,
        total=f"{metrics.get('parameters_total', 0):,}",
        trainable=f"{metrics.get('parameters_trainable', 0):,}",
        plugins=", ".join(map(code, imported_plugins())),
        measured=measured,
        classes="\n".join(_class_row(label, each) for label, each in by_class.items()),
        temperature=f"{metrics['temperature']:.3f}" if "temperature" in metrics else None,
        example_python=json.dumps(example, ensure_ascii=False),
        example_shell=shlex.quote(example),
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


def _is_shown(text: str) -> bool:
    """Whether a text, or what it is in quotes, is nothing but itself in a card's block of code."""
    return 0 < len(text) <= _LONGEST_EXAMPLE and text.isprintable() and "```" not in text


def _prefix(split: str, metrics: Mapping[str, Any]) -> str:
    """What the keys of a split's figures begin with; best: those of the model that is saved."""
    prefix = _SPLITS[split]
    return f"best_{prefix}" if f"best_{prefix}_accuracy" in metrics else prefix


def _row(split: str, metrics: Mapping[str, Any]) -> str:
    prefix, name = _prefix(split, metrics), split
    if split == "train" and "best_epoch" in metrics:
        name = "train, last epoch"  # training figures are taken as it goes
    keys = [f"{prefix}_{key}" for key in ("accuracy", "macro_f1", "loss", "calibration_error")]
    values = [f"{metrics[key]:.4f}" if key in metrics else "–" for key in keys]
    return f"| {name} | {' | '.join(values)} | {metrics.get(f'{prefix}_examples', '–')} |"


def _class_row(label: str, figures: Mapping[str, float]) -> str:
    values = " | ".join(f"{figures[key]:.3f}" for key in ("precision", "recall", "f1"))
    name = code(label).replace("|", "\\|")  # ends a table's cell even in code
    return f"| {name} | {values} | {figures['support']} |"
