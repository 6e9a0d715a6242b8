"""One vector a word, whatever stands around it: GloVe, word2vec, or learned from scratch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from sopa_plugin.data.ngrams import MOST_NGRAMS, character_ngrams
from sopa_plugin.embedders.token_embedder import Found, TokenEmbedder
from sopa_plugin.embedders.vectors import VectorFile
from sopa_plugin.errors import UserError
from sopa_plugin.registry import Bound, LocalFile, NonNegativeInt, PositiveInt

DEFAULT_DIM = 300  # of the paper's GloVe 840B vectors
Unknown = Literal["zero", "mean", "random"]
RIDGE = 0.2
"""Of the regression of the file's vectors on n-grams. Of 0.02 to 0.5 it left the least error on
words held out (of GloVe 6B, whitened: mean cosine 0.29)."""

_FITTING_STEPS = 10  # of conjugate gradients, after which that error hardly changes
_WORDS = 1 << 16  # whose vectors are copied to float64 at once


@TokenEmbedder.register("static")
class StaticEmbedder(TokenEmbedder):
    """A table of word vectors, `weight [num_embeddings, embedding_dim]`.

    Registered as `static`. The paper's v_x (Eq. 3) are GloVe vectors of unit length, never trained.
    `[PAD]` and, by default, unknown words have the zero vector, as in the authors' released
    implementation: a self-loop or main-path arc over them scores its bias alone.

    Arguments:
        num_embeddings: Number of words, special tokens included; handed over.
        vectors: A file of word vectors as text (see `VectorFile`), or `hf://OWNER/NAME/FILE`; read
            when the model is first built for training. null: random vectors.
        member: The file within a zip archive that holds several.
        whiten: How far the file's vectors are decorrelated over the vocabulary, before they are
            scaled: 0 not at all, 1 fully; see `whitened`. Not in the paper.
        embedding_dim: Dimension of the vectors; null takes the file's, or 300 without a file.
        trainable: Whether the vectors are trained; null trains only random ones.
        normalize: Scale each vector to unit length, as in the paper (trained vectors start so).
        unknown: The vector of `[UNK]` and of words that the file lacks: `zero`, the `mean` of the
            others (not where these are whitened, and so have none), or `random` ones as long as
            the others (`[UNK]` and each word its own).
        own_rows: Whether the words that the file lacks learn what is to be added to that: a row of
            their own, zero at first, while the file's vectors stay frozen.
        ngram_buckets: How many numbers the character n-grams of words are hashed to, whose mean is
            added to the vector of a word that the file lacks, also of one first seen at prediction
            (fastText; Bojanowski et al., TACL 2017). They begin as what gives the words of the file
            their vectors best (Zhao et al., EMNLP 2018), and are trained. 0 does without; about
            20,000 are enough. Needs `own_rows`.
        num_rows: Number of words with a row that is trained; handed over.
    """

    handed_over: ClassVar[frozenset[str]] = frozenset({"num_embeddings", "num_rows"})

    def __init__(
        self,
        num_embeddings: int,
        vectors: LocalFile | None = None,
        member: str | None = None,
        whiten: Annotated[float, Bound(at_least=0, at_most=1)] = 0.0,
        embedding_dim: PositiveInt | None = None,
        trainable: bool | None = None,
        normalize: bool = True,
        unknown: Unknown = "zero",
        own_rows: bool = False,
        ngram_buckets: NonNegativeInt = 0,
        num_rows: NonNegativeInt | None = None,
    ) -> None:
        super().__init__()
        self.trainable = own_rows or _is_trainable(vectors, trainable)
        self.normalize = normalize
        self.unknown = unknown
        weight = torch.empty(num_embeddings, embedding_dim or DEFAULT_DIM)
        self.weight = nn.Parameter(weight, requires_grad=_is_trainable(vectors, trainable))
        self.own_rows: OwnRows | None = None
        if own_rows:
            self.own_rows = OwnRows(weight, num_rows or 0, ngram_buckets)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws vectors at random."""
        with torch.no_grad():
            drawn = torch.randn_like(self.weight)
            self.weight.copy_(functional.normalize(drawn, dim=1) if self.normalize else drawn)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, ngrams: Tensor | None = None
    ) -> Tensor:
        """Vectors `[..., embedding_dim]` of `input_ids [...]`; the mask changes nothing."""
        vectors = functional.embedding(input_ids, self.weight)
        return vectors if self.own_rows is None else self.own_rows(vectors, input_ids, ngrams)

    def get_output_dim(self) -> int:
        """Dimension of the vectors."""
        return self.weight.shape[1]

    @classmethod
    def check_params(cls, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Arguments that need a file where none is named, or do not go together."""
        if params.get("member") is not None and params.get("vectors") is None:
            yield "member", "expected only together with `vectors`, an archive that holds it"
        if params.get("own_rows") and _is_trainable(params.get("vectors"), params.get("trainable")):
            yield "own_rows", "expected only with frozen `vectors`; here all rows are trained"
        if params.get("ngram_buckets") and not params.get("own_rows"):
            yield "ngram_buckets", "expected only together with `own_rows: true`"
        whiten = params.get("whiten", 0)
        if whiten and params.get("vectors") is None:
            yield (
                "whiten",
                f"expected 0 without `vectors`, whose vectors it changes; found {whiten}",
            )
        elif whiten and params.get("unknown") == "mean":
            yield "unknown", "the mean of whitened vectors is zero; take unknown 'zero' or 'random'"

    @classmethod
    def pretrained_words(cls, params: Mapping[str, Any]) -> Iterator[str]:
        """The words of the file, if its vectors are frozen."""
        vectors = params.get("vectors")
        if vectors is not None and not _is_trainable(vectors, params.get("trainable")):
            yield from VectorFile(vectors, params.get("member")).words()

    @classmethod
    def is_cased(cls, params: Mapping[str, Any]) -> bool | None:
        """Whether words of the file have capitals, if there is one."""
        vectors = params.get("vectors")
        return None if vectors is None else VectorFile(vectors, params.get("member")).is_cased()

    @classmethod
    def resolve(
        cls, params: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """`params` without the file, with the sizes that come from the file and the tokenizer.

        Raises:
            UserError: The file cannot be read, or `embedding_dim` is not its dimension.
        """
        of_file = ("vectors", "member", "whiten")
        resolved = {key: each for key, each in params.items() if key not in of_file}
        vectors, dim = params.get("vectors"), params.get("embedding_dim")
        if vectors is not None:
            file_dim = VectorFile(vectors, params.get("member")).dim
            if dim not in (None, file_dim):
                raise UserError(
                    f"embedder.embedding_dim: expected {file_dim}, the dimension of {vectors}, "
                    f"found {dim}; leave it out"
                )
            dim = file_dim
        return resolved | {
            "num_embeddings": len(tokenizer),
            "embedding_dim": dim or DEFAULT_DIM,
            "trainable": _is_trainable(vectors, params.get("trainable")),
        }

    @torch.no_grad()
    def load_pretrained(
        self, params: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, Any]:
        """Fills in the vectors of the file, if there is one, and those of unknown words.

        Returns how many words have rows of their own.

        Raises:
            UserError: The file cannot be read, or has no word of the vocabulary.
        """
        special = set(tokenizer.all_special_ids)
        rows = {word: row for word, row in tokenizer.get_vocab().items() if row not in special}
        vectors = params.get("vectors")
        known = list(rows.values())
        if vectors is not None:
            table, known = VectorFile(vectors, params.get("member")).read(rows, _folding(tokenizer))
            if rows and not known:
                raise UserError(
                    f"{vectors}: none of the {len(rows)} words of the vocabulary has a vector in "
                    "this file; is it of another language, or the text cased and the file "
                    "lower-cased (tokenizer.lowercase: true)?"
                )
            self.found = Found(vectors, known)
            found = torch.from_numpy(table[known]).to(self.weight)
            share = params.get("whiten", 0)
            self.weight[known] = whitened(found, share) if share and known else found
        lacking = torch.ones(len(self.weight), dtype=torch.bool)
        lacking[known] = False
        self.weight[lacking] = self._unknown_vectors(self.weight[~lacking], int(lacking.sum()))
        if self.normalize:
            self.weight.copy_(functional.normalize(self.weight, dim=1))
        if tokenizer.pad_token_id is not None:
            self.weight[tokenizer.pad_token_id] = 0
            lacking[tokenizer.pad_token_id] = False
        if self.own_rows is None:
            return {}
        self.own_rows = OwnRows(self.weight, int(lacking.sum()), self.own_rows.ngram_buckets)
        words = {row: word for word, row in rows.items() if " " not in word}  # no words, but rows
        self.own_rows.start(lacking, words, self.weight)
        return {"num_rows": self.own_rows.num_rows}

    def _unknown_vectors(self, known: Tensor, count: int) -> Tensor:
        """The vectors `[count, embedding_dim]` of what the file lacks."""
        zero = known.new_zeros(count, known.shape[1])
        if self.unknown == "zero" or not len(known):
            return zero
        if self.unknown == "mean":
            return zero + known.mean(dim=0)
        return torch.randn_like(zero) * known.square().mean().sqrt()


class OwnRows(nn.Module):
    """What is learned of words beyond vectors that stay as they are: a row each, and n-grams.

    Gradients are sparse: a training step costs what the rows of its batch cost.

    Arguments:
        weight: the vectors that stay, `[num_embeddings, dim]`, of which only the shape counts.
        num_rows: number of words with a row.
        ngram_buckets: see `StaticEmbedder`.

    Attributes:
        slots: the row of each word, `[num_embeddings]`; 0 is of those without one, and stays zero.
        rows: `[num_rows + 1, dim]`.
        ngrams: the n-grams' vectors `[ngram_buckets + 1, dim]`, of 0 zero; None without.
        word_ngrams: those of the words with a row, `[num_rows + 1, MOST_NGRAMS]`.
    """

    slots: Tensor
    word_ngrams: Tensor

    def __init__(self, weight: Tensor, num_rows: int, ngram_buckets: int) -> None:
        super().__init__()
        num_embeddings, dim = weight.shape
        self.num_rows, self.ngram_buckets = num_rows, ngram_buckets
        self.register_buffer("slots", torch.zeros(num_embeddings, dtype=torch.int32))
        self.rows = nn.Embedding(num_rows + 1, dim, padding_idx=0, sparse=True)
        self.ngrams: nn.EmbeddingBag | None = None
        if ngram_buckets:
            self.ngrams = nn.EmbeddingBag(
                ngram_buckets + 1, dim, mode="mean", padding_idx=0, sparse=True
            )
            word_ngrams = torch.zeros(num_rows + 1, MOST_NGRAMS, dtype=torch.int32)
            self.register_buffer("word_ngrams", word_ngrams)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing is learned yet."""
        for each in self.parameters():
            nn.init.zeros_(each)

    def forward(self, vectors: Tensor, input_ids: Tensor, ngrams: Tensor | None = None) -> Tensor:
        """`vectors [..., dim]` of `input_ids [...]`, with what is learned of the words.

        `ngrams [words, 1 + MOST_NGRAMS]`: of some of the tokens, that have no row.
        """
        slots = self.slots[input_ids]
        vectors = vectors + self.rows(slots)
        if self.ngrams is None:
            return vectors
        places = slots.flatten().nonzero().flatten()
        numbers = self.word_ngrams[slots.flatten()[places]]
        if ngrams is not None:
            places = torch.cat([places, ngrams[:, 0]])
            numbers = torch.cat([numbers, ngrams[:, 1:].to(numbers)])
        found = vectors.flatten(0, -2).index_add(0, places, self.ngrams(numbers))
        return found.view_as(vectors)

    @torch.no_grad()
    def start(self, lacking: Tensor, words: Mapping[int, str], weight: Tensor) -> None:
        """Gives rows to the words that lack a vector, and n-grams to the vectors of the others.

        Arguments:
            lacking: which words, `[num_embeddings]`.
            words: with n-grams, by their ids.
            weight: `[num_embeddings, dim]`.
        """
        self.slots[lacking] = torch.arange(1, self.num_rows + 1).to(self.slots)
        if self.ngrams is None:
            return
        found = torch.zeros(len(self.slots), MOST_NGRAMS, dtype=torch.int32)
        for row, word in words.items():
            found[row] = torch.tensor(character_ngrams(word, self.ngram_buckets))
        self.word_ngrams[1:] = found[lacking]
        fitted = fitted_ngrams(found[~lacking], weight[~lacking], len(self.ngrams.weight))
        self.ngrams.weight.copy_(fitted)


def fitted_ngrams(ngrams: Tensor, vectors: Tensor, count: int) -> Tensor:
    """Vectors `[count, dim]` of n-grams whose means are the nearest to the `vectors` of words.

    By ridge regression (`RIDGE`), that those of few words stay small.

    Arguments:
        ngrams: of each word, `[words, MOST_NGRAMS]`; 0 is none.
        vectors: `[words, dim]`.
        count: how many n-grams there are, 0 included.
    """
    ngrams, vectors = ngrams[ngrams[:, 0] > 0], vectors[ngrams[:, 0] > 0]
    of_word, place = ngrams.nonzero(as_tuple=True)
    shares = 1 / (ngrams > 0).sum(dim=1)[of_word].to(vectors)
    entries = torch.stack([of_word, ngrams[of_word, place].long()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that its sparse tensors are new
        # shape: [words, count] and its transpose; times vectors of n-grams, the means of words
        means, back = (
            torch.sparse_coo_tensor(which, shares, shape, check_invariants=False).to_sparse_csr()
            for which, shape in (
                (entries, (len(ngrams), count)),
                (entries.flip(0), (count, len(ngrams))),
            )
        )
    found, rest = vectors.new_zeros(count, vectors.shape[1]), back @ vectors
    # conjugate gradients, of every dimension by itself
    size, step = rest.square().sum(dim=0), rest
    for _ in range(_FITTING_STEPS):
        image = back @ (means @ step) + RIDGE * step
        length = size / (step * image).sum(dim=0).clamp(min=1e-30)
        found, rest = found + length * step, rest - length * image
        before, size = size, rest.square().sum(dim=0)
        step = rest + size / before.clamp(min=1e-30) * step
    return found


def whitened(vectors: Tensor, share: float) -> Tensor:
    """`vectors [words, dim]`, centred, times their covariance C to the power `-share / 2`.

    With a `share` of 1 their covariance becomes the identity, so that the few directions in which
    most words differ (their frequency among them) do not drown the others; compare Mu and Viswanath
    (ICLR 2018). Directions in which no vector differs become zero.
    """
    mean = vectors.mean(dim=0, dtype=torch.float64)
    # shape: [dim, dim]; float32 would lose directions of little variance
    covariance = vectors.new_zeros(len(mean), len(mean), dtype=torch.float64)
    for some in vectors.split(_WORDS):
        covariance += (some - mean).T @ (some - mean) / len(vectors)
    variances, directions = torch.linalg.eigh(covariance)
    differ = variances > variances[-1] * torch.finfo(torch.float64).eps * len(variances)
    scales = torch.where(differ, variances, torch.inf) ** (-share / 2)
    result: Tensor = (vectors - mean.to(vectors)) @ (directions * scales @ directions.T).to(vectors)
    return result


def _is_trainable(vectors: str | None, trainable: bool | None) -> bool:
    """Random vectors are trained and a file's are not, if not said otherwise."""
    return vectors is None if trainable is None else trainable


def _folding(tokenizer: PreTrainedTokenizerBase) -> Any:
    """What the tokenizer does to text before it splits it (lower-casing), if anything."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return None if normalizer is None else normalizer.normalize_str
