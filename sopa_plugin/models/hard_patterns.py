"""Hard patterns: logistic regression over sequences of words with wildcards between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from sopa_plugin.data.batches import Documents, Integers
from sopa_plugin.errors import TrainingFailed
from sopa_plugin.models.linear_model import LinearModel, Tensors
from sopa_plugin.models.model import Model
from sopa_plugin.registry import Bound, PositiveInt

Flags = NDArray[np.bool_]

CANDIDATES_AT_ONCE = 2**22  # bounds the memory of one step to a few hundred megabytes


@dataclass(frozen=True)
class Lexicon:
    """What each word of the vocabulary may stand for; a word may be both, or neither.

    Attributes:
        concrete: whether a pattern may name the word, `[words]`.
        wildcard: whether a wildcard stands for it, `[words]`.
    """

    concrete: Flags
    wildcard: Flags

    @classmethod
    def count(
        cls, ids: Integers, num_words: int, unknown: int | None, concrete: float, wildcard: float
    ) -> Lexicon:
        """Sorts words by their share of the training tokens.

        Arguments:
            ids: all training tokens.
            num_words: of the vocabulary.
            unknown: the word that stands for all unknown ones, which is only ever a wildcard.
            concrete: least share of a concrete word.
            wildcard: largest share of a wildcard.
        """
        counts = np.bincount(ids, minlength=num_words)
        is_concrete = (counts > 0) & (counts >= concrete * len(ids))
        is_wildcard = counts <= wildcard * len(ids)
        if unknown is not None:
            is_concrete[unknown], is_wildcard[unknown] = False, True
        return cls(is_concrete, is_wildcard)


@dataclass(frozen=True)
class PatternTrie:
    """A set of patterns that holds the beginnings of each: pattern p is `parent[p]` and `word[p]`.

    Attributes:
        parent: the pattern without its last word, -1 for a single word, `[patterns]`.
        word: the last word, `[patterns]`.
    """

    parent: Integers
    word: Integers

    def sequences(self) -> list[tuple[int, ...]]:
        """The words of each pattern."""
        words: list[tuple[int, ...]] = []
        for parent, word in zip(self.parent.tolist(), self.word.tolist(), strict=True):
            words.append((*words[parent], word) if parent >= 0 else (word,))
        return words

    @classmethod
    def of(cls, sequences: list[tuple[int, ...]]) -> PatternTrie:
        """The trie of patterns in an order in which beginnings come first."""
        number = {sequence: i for i, sequence in enumerate(sequences)}
        parents = [number.get(sequence[:-1], -1) for sequence in sequences]
        words = [sequence[-1] for sequence in sequences]
        return cls(np.array(parents, dtype=np.int64), np.array(words, dtype=np.int64))

    def match(self, documents: Documents, lexicon: Lexicon) -> tuple[Integers, Integers]:
        """Which documents have which patterns: pairs (document, pattern) without repetition."""
        corpus = _Corpus(documents, lexicon)
        order = np.lexsort((self.word, self.parent))
        known = corpus.key(self.parent[order], self.word[order])
        found: list[Integers] = []
        stack = [corpus.starts()]
        while stack:
            keys, position = stack.pop()
            places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            hit = known[places] == keys if len(known) else np.zeros(len(keys), dtype=bool)
            pairs = np.unique(order[places[hit]] * len(documents.ids) + position[hit])
            pattern, position = np.divmod(pairs, len(documents.ids))
            found.append(np.unique(corpus.document[position] * len(self.word) + pattern))
            stack.extend(corpus.extensions(pattern, position))
        pairs = np.unique(np.concatenate(found))
        return np.divmod(pairs, max(len(self.word), 1))  # type: ignore[return-value]


def mine(
    documents: Documents, lexicon: Lexicon, max_length: int, min_documents: int
) -> PatternTrie:
    """Every pattern of up to `max_length` words that at least `min_documents` documents have.

    A pattern is in a document if its concrete words are there in order and every word between two
    adjacent ones is a wildcard. A pattern is in no more documents than its beginning is, so
    frequent patterns are grown word by word, and rare ones never.
    """
    corpus = _Corpus(documents, lexicon)
    parents: list[Integers] = []
    words: list[Integers] = []
    total = 0
    stack = [(corpus.starts(), 1)]
    while stack:
        (keys, position), length = stack.pop()
        new_keys, pattern, position = _frequent(corpus, keys, position, min_documents)
        parent, word = corpus.parent_and_word(new_keys)
        parents.append(parent)
        words.append(word)
        if length < max_length:
            longer = corpus.extensions(pattern + total, position)
            stack.extend((each, length + 1) for each in longer)
        total += len(new_keys)
    return PatternTrie(np.concatenate(parents), np.concatenate(words))


def _frequent(
    corpus: _Corpus, keys: Integers, position: Integers, min_documents: int
) -> tuple[Integers, Integers, Integers]:
    """The keys that occur in enough documents, and where: each one's place in that list and the
    position of its last word, in this order, without repetition."""
    distinct, code = np.unique(keys, return_inverse=True)
    pairs = np.unique(code * len(corpus.ids) + position)
    code, position = np.divmod(pairs, len(corpus.ids))
    document = corpus.document[position]
    # ordered by code and position, so a document's occurrences of a pattern stand together
    first = np.ones(len(pairs), dtype=bool)
    first[1:] = (np.diff(code) != 0) | (np.diff(document) != 0)
    frequent = np.bincount(code[first], minlength=len(distinct)) >= min_documents
    number = np.cumsum(frequent) - 1
    kept = frequent[code]
    return distinct[frequent], number[code[kept]], position[kept]


class _Corpus:
    """Documents, made ready for patterns to be followed through them."""

    def __init__(self, documents: Documents, lexicon: Lexicon) -> None:
        self.ids = documents.ids
        self.num_words = len(lexicon.concrete)
        self.concrete = lexicon.concrete[self.ids]
        self.document = np.repeat(np.arange(len(documents)), documents.lengths)
        # shape: [tokens], the last token that may follow: the next that is no wildcard
        stops = np.append(np.flatnonzero(~lexicon.wildcard[self.ids]), len(self.ids))
        following = stops[np.searchsorted(stops[:-1], np.arange(len(self.ids)), side="right")]
        self.reach = np.minimum(following, np.repeat(documents.offsets[1:] - 1, documents.lengths))

    def key(self, parent: Integers, word: Integers) -> Integers:
        """One number for a pattern's parent (-1 for none) and last word."""
        return (parent + 1) * self.num_words + word

    def parent_and_word(self, keys: Integers) -> tuple[Integers, Integers]:
        """The inverse of `key`."""
        parent, word = np.divmod(keys, self.num_words)
        return parent - 1, word

    def starts(self) -> tuple[Integers, Integers]:
        """Keys and positions of all single concrete words."""
        position = np.flatnonzero(self.concrete)
        return self.key(np.full(len(position), -1), self.ids[position]), position

    def extensions(
        self, pattern: Integers, position: Integers
    ) -> Iterator[tuple[Integers, Integers]]:
        """Keys and positions of all patterns one word longer, with repetitions.

        They come in parts of about `CANDIDATES_AT_ONCE`, each with all occurrences of its patterns.

        Arguments:
            pattern: numbers of the patterns, ascending, one for each occurrence.
            position: of its last word, over all documents' tokens.
        """
        counts = self.reach[position] - position
        ends = np.cumsum(counts)
        start = 0
        while start < len(pattern):
            limit = (ends[start - 1] if start else 0) + CANDIDATES_AT_ONCE
            last = max(int(np.searchsorted(ends, limit)) - 1, start)
            stop = int(np.searchsorted(pattern, pattern[last], side="right"))
            some = np.repeat(np.arange(start, stop), counts[start:stop])
            # the first word after each occurrence, the second, ...
            after = np.arange(len(some)) - (ends - counts)[some] + (ends - counts)[start]
            start = stop
            following = position[some] + 1 + after
            kept = self.concrete[following]
            if kept.any():
                yield (
                    self.key(pattern[some[kept]], self.ids[following[kept]]),
                    following[kept],
                )


Share = Annotated[float, Bound(at_least=0, at_most=1)]


@Model.register("hard_patterns")
@dataclass(eq=False, repr=False)
class HardPatterns(LinearModel):
    """The paper's feature-based baseline (section 5; after Tsur et al. 2010).

    Registered as `hard_patterns`; trained by `sklearn`. A hard pattern is a sequence of concrete
    words. A document has it if it has the words in that order and every word between two adjacent
    ones is a wildcard, that is, rare. Each pattern is a feature that is 1 or 0.

    Arguments:
        max_length: most words of a pattern; the paper's 6.
        min_frequency: how many training documents a pattern must be in: a count, or a share below
            1 (`0.001`). The paper tries 2 to 10 and 0.1 %; 10 gives 7K patterns on SST, as many as
            the paper has (6K).
        concrete_frequency: least share of the training tokens of a concrete word; the paper's
            0.01 %.
        wildcard_frequency: largest share of the training tokens of a word that a wildcard stands
            for; the paper's 1 %. Unknown words are wildcards. A word may be concrete and a
            wildcard.
    """

    max_length: PositiveInt = 6
    min_frequency: PositiveInt | Annotated[float, Bound(above=0, below=1)] = 10
    concrete_frequency: Share = 0.0001
    wildcard_frequency: Share = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        no_words = np.zeros(len(self.tokenizer), dtype=bool)
        self.lexicon = Lexicon(no_words, ~no_words)
        self.trie = PatternTrie.of([])

    def fit_features(self, texts: Sequence[str]) -> Any:
        """Mines the patterns; the texts' features, sparse `[texts, patterns]`."""
        documents = Documents.encode(texts, self.tokenizer)
        self.lexicon = Lexicon.count(
            documents.ids,
            len(self.tokenizer),
            self.tokenizer.unk_token_id,
            self.concrete_frequency,
            self.wildcard_frequency,
        )
        least = self.min_frequency
        count = math.ceil(least * len(texts)) if least < 1 else int(least)
        self.trie = mine(documents, self.lexicon, self.max_length, count)
        if not len(self.trie.word):
            raise TrainingFailed(
                f"model.min_frequency: no pattern is in {count} of the {len(texts)} training "
                "documents; lower it"
            )
        return self._matrix(documents)

    def features(self, texts: Sequence[str]) -> Any:
        """Which text has which pattern, sparse `[texts, patterns]`."""
        return self._matrix(Documents.encode(texts, self.tokenizer))

    def patterns(self) -> list[list[str]]:
        """The words of each pattern, in the order of the features."""
        words = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        return [[words[number] for number in each] for each in self.trie.sequences()]

    def feature_state(self) -> tuple[Any, Tensors]:
        """The patterns, and the words that no wildcard stands for."""
        frequent = np.flatnonzero(~self.lexicon.wildcard).tolist()
        words = self.tokenizer.convert_ids_to_tokens(frequent)
        return {"no_wildcards": words, "patterns": self.patterns()}, {}

    def set_feature_state(self, description: Any, tensors: Tensors) -> None:
        """Takes what `feature_state` gave."""
        numbers = self.tokenizer.get_vocab()
        patterns = [tuple(numbers[word] for word in each) for each in description["patterns"]]
        self.trie = PatternTrie.of(patterns)
        concrete = np.zeros(len(self.tokenizer), dtype=bool)
        concrete[self.trie.word] = True  # every word of a frequent pattern is one by itself
        wildcard = np.ones(len(self.tokenizer), dtype=bool)
        wildcard[[numbers[word] for word in description["no_wildcards"]]] = False
        self.lexicon = Lexicon(concrete, wildcard)

    def _matrix(self, documents: Documents) -> Any:
        from scipy.sparse import csr_array

        rows, columns = self.trie.match(documents, self.lexicon)
        shape = (len(documents), len(self.trie.word))
        return csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
