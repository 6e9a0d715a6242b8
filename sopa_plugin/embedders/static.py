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
        trainable: Whether the vectors of the training texts' words are trained, from those of the
            file on; null trains only random ones.
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
            20,000 are enough. Needs `own_rows`, or vectors that are trained.
        num_rows: Number of words with a row that is trained; handed over. null, as in models of
            before: the table itself is trained.
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
        in_place = num_rows is None and _is_trainable(vectors, trainable)
        self.weight = nn.Parameter(weight, requires_grad=in_place)
        self.own_rows: OwnRows | None = None
        if own_rows or num_rows is not None:
            self.own_rows = OwnRows(weight, num_rows or 0, ngram_buckets)
        self.reset_parameters()

    @property
    def capturable(self) -> bool:  # type: ignore[override]
        """Where nothing is learned: rows that are learn from the words of a batch alone."""
        return not self.trainable

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
        trainable = _is_trainable(params.get("vectors"), params.get("trainable"))
        if params.get("own_rows") and trainable:
            yield "own_rows", "expected only with frozen `vectors`; here all rows are trained"
        if params.get("ngram_buckets") and not (params.get("own_rows") or trainable):
            yield "ngram_buckets", "expected together with `own_rows: true` or trained vectors"
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
        """The words of the file."""
        vectors = params.get("vectors")
        if vectors is not None:
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
        trainable = _is_trainable(vectors, params.get("trainable"))
        if trainable or params.get("own_rows"):
            resolved["num_rows"] = 0  # as long as the file is not read
        return resolved | {
            "num_embeddings": len(tokenizer),
            "embedding_dim": dim or DEFAULT_DIM,
            "trainable": trainable,
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
        if self.own_rows is None:
            return {}
        if vectors is None:
            lacking[:] = True
        trained = lacking.clone()
        if not params.get("own_rows"):
            trained[: document_ids(tokenizer)] = True
        if tokenizer.pad_token_id is not None:
            trained[tokenizer.pad_token_id] = lacking[tokenizer.pad_token_id] = False
        self.own_rows = OwnRows(self.weight, int(trained.sum()), self.own_rows.ngram_buckets)
        words = {row: word for word, row in rows.items() if " " not in word}  # no words, but rows
        self.own_rows.start(trained, lacking, words, self.weight)
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

    Gradients may be sparse (`learned.sparse`), as our trainer has them: then a training step costs
    what the rows of its batch cost.

    Arguments:
        weight: the vectors that stay, `[num_embeddings, dim]`, of which only the shape counts.
        num_rows: number of words with a row.
        ngram_buckets: see `StaticEmbedder`.

    Attributes:
        slots: the row of each word, `[num_embeddings]`; 0 is of those without one, and stays zero.
        learned: the rows, from 1 on, and then the n-grams' vectors.
        members: of the words with a row, that row and those of their n-grams,
            `[num_rows + 1, 1 + MOST_NGRAMS]`; without n-grams `[num_rows + 1, 1]`.
    """

    slots: Tensor
    members: Tensor

    def __init__(self, weight: Tensor, num_rows: int, ngram_buckets: int) -> None:
        super().__init__()
        num_embeddings, dim = weight.shape
        self.num_rows, self.ngram_buckets = num_rows, ngram_buckets
        self.register_buffer("slots", torch.zeros(num_embeddings, dtype=torch.int32))
        count, width = 1 + num_rows + ngram_buckets, 1 + MOST_NGRAMS if ngram_buckets else 1
        self.learned = nn.EmbeddingBag(
            *(count, dim),
            mode="sum",
            padding_idx=0,
            _weight=torch.zeros(count, dim),  # else random numbers would be drawn
        )
        members = torch.zeros(num_rows + 1, width, dtype=torch.int32)
        members[:, 0] = torch.arange(num_rows + 1)
        self.register_buffer("members", members)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Nothing is learned yet."""
        nn.init.zeros_(self.learned.weight)

    def check_places(self) -> None:
        """Raises `ValueError` where `slots` or `members`, of a file, name a row that is none."""
        for places, count in (
            (self.slots, len(self.members)),
            (self.members, self.learned.num_embeddings),
        ):
            if ((places < 0) | (places >= count)).any():
                raise ValueError(f"expected rows 0 to {count - 1}")

    @property
    def ngrams(self) -> Tensor:
        """Vectors of n-grams, `[1 + ngram_buckets, dim]`; the first is of none."""
        return self.learned.weight[self.num_rows :]

    def forward(self, vectors: Tensor, input_ids: Tensor, ngrams: Tensor | None = None) -> Tensor:
        """`vectors [..., dim]` of `input_ids [...]`, with what is learned of the words.

        `ngrams [words, 1 + MOST_NGRAMS]`: of some of the tokens, beside their rows.
        """
        slots = self.slots[input_ids].flatten()
        places = slots.nonzero().flatten()
        members = self.members[slots[places]]
        if ngrams is not None and self.ngram_buckets:
            new = ngrams[:, 1:] + self.num_rows * (ngrams[:, 1:] > 0)
            places = torch.cat([places, ngrams[:, 0]])
            members = torch.cat([members, functional.pad(new, (1, 0)).to(members)])
        shares = torch.ones_like(members, dtype=vectors.dtype)
        if self.ngram_buckets:  # of which the mean counts
            shares[:, 1:] /= (members[:, 1:] > 0).sum(dim=1, keepdim=True).clamp(min=1)
        learned = self.learned(members, per_sample_weights=shares)
        return vectors.flatten(0, -2).index_add(0, places, learned).view_as(vectors)

    @torch.no_grad()
    def start(
        self, trained: Tensor, lacking: Tensor, words: Mapping[int, str], weight: Tensor
    ) -> None:
        """Gives words rows and those without a vector n-grams, fitted to the vectors of the others.

        Arguments:
            trained, lacking: which words have a row, and which no vector, `[num_embeddings]`.
            words: those that have n-grams, by their ids.
            weight: `[num_embeddings, dim]`.
        """
        self.slots[trained] = torch.arange(1, self.num_rows + 1).to(self.slots)
        if not self.ngram_buckets:
            return
        found = torch.zeros(len(self.slots), MOST_NGRAMS, dtype=torch.int32)
        for row, word in words.items():
            found[row] = torch.tensor(character_ngrams(word, self.ngram_buckets))
        self.ngrams.copy_(fitted_ngrams(found[~lacking], weight[~lacking], len(self.ngrams)))
        self.learned.weight[: self.num_rows + 1] = 0
        found = (found + self.num_rows * (found > 0)) * lacking[:, None]
        self.members[1:, 1:] = found[trained]


def document_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many of the first ids are of words that documents had, special tokens included."""
    return int(tokenizer.init_kwargs.get("document_ids", len(tokenizer)))


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
