"""The model card of a run: README.md, as Hugging Face shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sopa_plugin import __version__

SAMPLE_NOTE = (
    "Trained on the embedded sample of sopa_plugin: a demonstration. Its figures say nothing "
    "about real data."
)
_SPLITS = {"train": "training", "dev": "validation", "test": "test"}
_SHOWN = {"accuracy": "accuracy", "macro_f1": "macro-F1", "loss": "loss"}


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
    model = config["model"]
    is_transformers = model.get("type") == "text_classifier"
    lines = [
        "---",
        "pipeline_tag: text-classification",
        *(["library_name: transformers"] if is_transformers else []),
        "tags:",
        "- sopa_plugin",
        "- soft-patterns",
        "---",
        *([f"**{SAMPLE_NOTE}**"] if is_sample else []),
        "",
        f"# {name}",
        "",
        f"A text classifier (`{model.get('type')}`{_parts(model)}) trained by sopa_plugin "
        f"{__version__} on {data}: "
        + ", ".join(f"{size} {split}" for split, size in sizes.items())
        + ".",
        "",
        "Classes: " + ", ".join(f"`{label}`" for label in labels) + ".",
        "",
        "## Figures",
        "",
        "| | " + " | ".join(_SHOWN.values()) + " | examples |",
        "|---" * (len(_SHOWN) + 2) + "|",
        *(_row(split, _prefix(prefix, metrics), metrics) for split, prefix in _SPLITS.items()),
        "",
        f"Parameters: {metrics.get('parameters_total', 0):,}, of which trained: "
        f"{metrics.get('parameters_trainable', 0):,}. Everything measured is in `metrics.json`, "
        "the whole config in `experiment.json`.",
        "",
        "## Use",
        "",
        *_usage(is_transformers, plugins),
    ]
    return "\n".join(lines) + "\n"


def _parts(model: Mapping[str, Any]) -> str:
    parts = [
        each["type"] for each in model.values() if isinstance(each, Mapping) and "type" in each
    ]
    return ": " + ", ".join(f"`{each}`" for each in parts) if parts else ""


def _prefix(prefix: str, metrics: Mapping[str, Any]) -> str:
    """The dev figures are those of the model that is saved, the best one's."""
    best = f"best_{prefix}"
    return best if f"{best}_accuracy" in metrics else prefix


def _row(split: str, prefix: str, metrics: Mapping[str, Any]) -> str:
    values = [
        f"{metrics[f'{prefix}_{key}']:.4f}" if f"{prefix}_{key}" in metrics else "–"
        for key in _SHOWN
    ]
    # Training figures are taken as it goes, so they are the last epoch's.
    name = "train, last epoch" if split == "train" and "best_epoch" in metrics else split
    return f"| {name} | " + " | ".join(values) + f" | {metrics.get(f'{prefix}_examples', '–')} |"


def _usage(is_transformers: bool, plugins: Sequence[str]) -> list[str]:
    needs = [f"Needs the packages {', '.join(plugins)} too.", ""] if plugins else []
    shell = [
        "```bash",
        "echo 'a gripping , moving film' | python -m sopa_plugin.predict THIS_FOLDER",
        "```",
    ]
    if not is_transformers:
        return [*needs, *shell]
    return [
        *needs,
        "```python",
        "from transformers import pipeline",
        "",
        "import sopa_plugin.models  # makes the model known to transformers",
        "",
        'classify = pipeline("text-classification", model="THIS_FOLDER", top_k=None)',
        'classify("a gripping , moving film")',
        "```",
        "",
        *shell,
    ]
