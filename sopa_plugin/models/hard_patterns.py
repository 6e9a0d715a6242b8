"""Hard patterns: logistic regression over sequences of words with wildcards between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from sopa_plugin.data.batches import Documents
from sopa_plugin.errors import TrainingFailed, require
from sopa_plugin.models.hard_pattern_miner import Lexicon, PatternTrie, mine
from sopa_plugin.models.linear_model import LinearModel, Tensors
from sopa_plugin.models.model import Model
from sopa_plugin.registry import Bound, PositiveInt

Share = Annotated[float, Bound(at_least=0, at_most=1)]


@Model.register("hard_patterns")
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

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        labels: list[str],
        max_length: PositiveInt = 6,
        min_frequency: PositiveInt | Annotated[float, Bound(above=0, below=1)] = 10,
        concrete_frequency: Share = 0.0001,
        wildcard_frequency: Share = 0.01,
    ) -> None:
        super().__init__(tokenizer, labels)
        self.max_length = max_length
        self.min_frequency = min_frequency
        self.concrete_frequency = concrete_frequency
        self.wildcard_frequency = wildcard_frequency
        no_words = np.zeros(len(tokenizer), dtype=bool)
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
        sparse = require("scipy.sparse", "the model hard_patterns")
        rows, columns = self.trie.match(documents, self.lexicon)
        shape = (len(documents), len(self.trie.word))
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
