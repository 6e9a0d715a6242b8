"""Text to measure on: the Stanford Sentiment Treebank, or as much text of its shape."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from sopa_plugin.data.batches import Documents, Integers, training_batches
from sopa_plugin.data.tokenizers import make_tokenizer
from sopa_plugin.models import Model, TextClassifier
from sopa_plugin.registry import build

BATCH_SIZE = 150
DIM = 300  # of GloVe 840B, the paper's vectors
PATTERNS = {"6": 10, "5": 10, "4": 10, "3": 10, "2": 10}
LABELS = ["negative", "positive"]
TRAIN, DEV = 6920, 872  # sentences of SST

# SST's sentences have 19.3 ± 9.3 words, 2 to 52: a gamma distribution fits its quantiles.
_SHAPE, _SCALE, _SHORTEST, _LONGEST = 4.29, 4.5, 2, 52
# Words by rank r with probability ~ (r + shift) ** -exponent (Zipf and Mandelbrot), fitted to SST's
# 14,830 words in all and 1,142 in a batch of 150 sentences of like length.
_WORDS, _SHIFT, _EXPONENT = 25_000, 2, 1.1


@dataclass(frozen=True)
class Workload:
    """Sentences with labels.

    Attributes:
        what: describes them.
        texts, labels: those to train on.
        dev_texts, dev_labels: those to evaluate on.
    """

    what: str
    texts: Sequence[str]
    labels: Sequence[int]
    dev_texts: Sequence[str]
    dev_labels: Sequence[int]

    @cached_property
    def words(self) -> list[str]:
        """All words, in order of appearance."""
        texts = chain(self.texts, self.dev_texts)
        return list(dict.fromkeys(word for text in texts for word in text.split(" ") if word))

    @cached_property
    def documents(self) -> Documents:
        """The training sentences, tokenised."""
        return Documents.encode(self.texts, make_tokenizer(self.words), self.labels)

    def batches(self, count: int, by_length: bool = True) -> list[Integers]:
        """So many batches of an epoch, as the trainer makes them.

        From short ones to long ones, evenly: together they have an epoch's mean length.

        Arguments:
            count: how many, if there are so many.
            by_length: whether each is of sentences of like length.
        """
        lengths = self.documents.lengths
        steps = training_batches(lengths, BATCH_SIZE, seed=1, epoch=0, by_length=by_length)
        batches = sorted((numbers for (numbers,) in steps), key=lambda each: lengths[each].sum())
        count = min(count, len(batches))
        return [batches[(2 * i + 1) * len(batches) // (2 * count)] for i in range(count)]

    def classifier(self, **options: object) -> TextClassifier:
        """A classifier with the paper's 50 patterns of 2 to 6 states and frozen random vectors.

        `options` are further ones of the encoder.
        """
        params = {
            "embedder": {"type": "static", "embedding_dim": DIM, "trainable": False},
            "encoder": {"type": "sopa", "patterns": PATTERNS, **options},
            "head": {"type": "mlp", "hidden_dim": 25},
        }
        model = Model.from_params(params, tokenizer=make_tokenizer(self.words), labels=LABELS)
        assert isinstance(model, TextClassifier)
        return model


def make_workload(sentences: int = TRAIN, seed: int = 0) -> Workload:
    """SST from the folder or file that `SOPA_SST` names; else generated sentences of its shape.

    Arguments:
        sentences: at most how many to train on; an eighth of them more to evaluate on.
        seed: of what is generated.
    """
    path, dev = os.environ.get("SOPA_SST"), max(sentences * DEV // TRAIN, 1)
    if path:
        from sopa_plugin.data.readers import DatasetReader

        data = build(DatasetReader, {"type": "sst", "path": path}).read()
        train, held_out = data["train"][:sentences], data["dev"][:dev]
        columns = (each[key] for each in (train, held_out) for key in ("text", "label"))
        return Workload(f"SST ({len(train['text']):,} sentences)", *columns)
    random = np.random.default_rng(seed)
    texts = generate_sentences(random, sentences + dev)
    labels = random.integers(0, len(LABELS), len(texts)).tolist()
    what, n = f"generated sentences of SST's shape ({sentences:,})", sentences
    return Workload(what, texts[:n], labels[:n], texts[n:], labels[n:])


def generate_sentences(random: np.random.Generator, count: int) -> list[str]:
    """Sentences with as many words, and words repeated as often, as in SST."""
    lengths = random.gamma(_SHAPE, _SCALE, count).round().astype(int)
    lengths = lengths.clip(_SHORTEST, _LONGEST)
    chances = (np.arange(_WORDS) + 1 + _SHIFT) ** -_EXPONENT
    ranks = random.choice(_WORDS, lengths.sum(), p=chances / chances.sum())
    words = [_word(rank) for rank in range(_WORDS)]
    ends = np.cumsum(lengths)
    return [
        " ".join(words[rank] for rank in ranks[end - length : end])
        for end, length in zip(ends, lengths, strict=True)
    ]


def _word(rank: int) -> str:
    """A word that can be spoken, longer where it is rarer."""
    word = ""
    while True:
        rank, syllable = divmod(rank, 70)
        word += "bdfghklmnprstv"[syllable // 5] + "aeiou"[syllable % 5]
        if not rank:
            return word
        rank -= 1
