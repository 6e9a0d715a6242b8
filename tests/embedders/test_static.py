from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerBase

from sopa_plugin.data.ngrams import character_ngrams
from sopa_plugin.data.tokenizers import WhitespaceTokenizer, make_tokenizer
from sopa_plugin.embedders import StaticEmbedder, TokenEmbedder
from sopa_plugin.embedders.static import RIDGE, fitted_ngrams, whitened
from sopa_plugin.errors import UserError
from sopa_plugin.models.open_vocabulary import with_unknown_words
from sopa_plugin.registry import check, fill_defaults


@pytest.fixture
def vectors(tmp_path: Path) -> str:
    path = tmp_path / "vectors.txt"
    path.write_text("good 3 4\nfilm 0 2\nBad 0 -5\nzero 0 0\n")
    return str(path)


def tokenizer_of(text: str, lowercase: bool = False) -> PreTrainedTokenizerBase:
    return WhitespaceTokenizer(lowercase=lowercase).build([text], [], [])


def build(tokenizer: PreTrainedTokenizerBase, **params: Any) -> StaticEmbedder:
    """As a model is built for training: from a whole config."""
    params = fill_defaults(TokenEmbedder, {"type": "static", **params})
    embedder_class = TokenEmbedder.by_name(params.pop("type"))
    resolved = embedder_class.resolve(params, tokenizer)
    assert "vectors" not in resolved
    embedder = embedder_class(**resolved)
    embedder.load_pretrained(params, tokenizer)
    assert isinstance(embedder, StaticEmbedder)
    return embedder


def rows(embedder: StaticEmbedder, tokenizer: PreTrainedTokenizerBase, text: str) -> Any:
    ids = torch.tensor(tokenizer(text)["input_ids"])
    return embedder(ids, torch.ones_like(ids)).detach()


def test_vectors_of_unit_length_and_zero_for_what_is_unknown(vectors: str) -> None:
    tokenizer = tokenizer_of("good film strange zero")
    embedder = build(tokenizer, vectors=vectors)
    found = rows(embedder, tokenizer, "good film strange zero never-seen")
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.8], [0, 1], [0, 0], [0, 0], [0, 0]]))
    assert not embedder.weight[tokenizer.pad_token_id].any()
    assert embedder.get_output_dim() == 2


def test_vectors_as_they_are(vectors: str) -> None:
    tokenizer = tokenizer_of("good film")
    embedder = build(tokenizer, vectors=vectors, normalize=False)
    assert rows(embedder, tokenizer, "film good").tolist() == [[0, 2], [3, 4]]


def test_whitened_vectors_have_unit_covariance_over_the_vocabulary(tmp_path: Path) -> None:
    torch.manual_seed(0)
    drawn = torch.randn(50, 3) @ torch.randn(3, 3) + 5
    lines = [f"w{i} {' '.join(map(str, row))}\n" for i, row in enumerate(drawn.tolist())]
    (tmp_path / "vectors.txt").write_text("".join(lines))
    tokenizer = tokenizer_of(" ".join(f"w{i}" for i in range(50)))

    def covariance(whiten: float) -> torch.Tensor:
        path = str(tmp_path / "vectors.txt")
        embedder = build(tokenizer, vectors=path, whiten=whiten, normalize=False)
        return embedder.weight[2:].detach().T.cov(correction=0)

    torch.testing.assert_close(covariance(1), torch.eye(3), atol=1e-3, rtol=1e-3)
    before = covariance(0)
    torch.testing.assert_close(covariance(0.5) @ covariance(0.5), before, atol=1e-3, rtol=1e-3)


def test_whitened_vectors_of_few_words_by_hand(vectors: str) -> None:
    # (3, 4) and (0, 2) differ from their mean by (1.5, 1) and its opposite, of length 1.803.
    tokenizer = tokenizer_of("good film")
    embedder = build(tokenizer, vectors=vectors, whiten=1, normalize=False)
    found = rows(embedder, tokenizer, "good film unseen")
    expected = torch.tensor([[0.83205, 0.5547], [-0.83205, -0.5547], [0, 0]])
    torch.testing.assert_close(found, expected)


def test_whitening_of_what_hardly_differs() -> None:
    torch.manual_seed(0)
    drawn = torch.randn(50, 3) * torch.tensor([1, 1e-4, 0])
    covariance = whitened(drawn, 1).T.cov(correction=0)
    torch.testing.assert_close(covariance, torch.diag(torch.tensor([1.0, 1, 0])))
    same = torch.tensor([0.1, 0.3, 123.456]).expand(7, 3)
    assert not whitened(same, 1).any()


def test_whitening_without_words(vectors: str) -> None:
    tokenizer = make_tokenizer([])
    assert not build(tokenizer, vectors=vectors, whiten=1).weight.any()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"whiten": 0.5}, "whiten: expected 0 without `vectors`, .* found 0.5"),
        ({"vectors": "vectors.txt", "whiten": 0.5, "unknown": "mean"}, "unknown: the mean of"),
        ({"vectors": "vectors.txt", "whiten": 1.5}, "whiten: .*\n.* at least 0 and at most 1"),
    ],
)
def test_whitening_that_makes_no_sense_is_a_problem(params: dict[str, Any], message: str) -> None:
    problems = check(TokenEmbedder, {"type": "static", **params})
    assert any(re.search(message, str(problem)) for problem in problems)


def test_lower_cased_text_finds_cased_rows(vectors: str) -> None:
    tokenizer = tokenizer_of("BAD good", lowercase=True)
    embedder = build(tokenizer, vectors=vectors, normalize=False)
    assert rows(embedder, tokenizer, "Bad GOOD").tolist() == [[0, -5], [3, 4]]
    assert not rows(build(tokenizer_of("bad good"), vectors=vectors), tokenizer, "bad").any()


def test_mean_of_the_known_for_the_unknown(vectors: str) -> None:
    tokenizer = tokenizer_of("good film strange")
    embedder = build(tokenizer, vectors=vectors, unknown="mean", normalize=False)
    assert rows(embedder, tokenizer, "strange never-seen").tolist() == [[1.5, 3], [1.5, 3]]


def test_random_vectors_for_the_unknown(vectors: str) -> None:
    tokenizer = tokenizer_of("good film strange odd")
    embedder = build(tokenizer, vectors=vectors, unknown="random")
    torch.testing.assert_close(embedder.weight[1:].norm(dim=1), torch.ones(5))
    assert len(embedder.weight.unique(dim=0)) == 6


def test_without_a_file_vectors_are_random_and_trained() -> None:
    tokenizer = tokenizer_of("some words here")
    embedder = build(tokenizer, embedding_dim=7)
    assert embedder.trainable
    assert embedder.own_rows is not None
    torch.testing.assert_close(embedder.weight[2:].norm(dim=1), torch.ones(3))
    assert not embedder.weight[:2].any()
    assert build(tokenizer).get_output_dim() == 300
    frozen = build(tokenizer, trainable=False)
    assert not frozen.trainable
    assert frozen.own_rows is None


def test_vectors_of_a_file_are_frozen_unless_asked_for(vectors: str) -> None:
    tokenizer = tokenizer_of("good film")
    for trainable in (None, False, True):
        embedder = build(tokenizer, vectors=vectors, trainable=trainable)
        assert embedder.trainable is bool(trainable)
        assert any(each.requires_grad for each in embedder.parameters()) is bool(trainable)
        words = TokenEmbedder.by_name("static").pretrained_words(
            {"vectors": vectors, "trainable": trainable}
        )
        assert list(words) == ["good", "film", "Bad", "zero"]


def test_ids_of_any_shape() -> None:
    embedder = StaticEmbedder(num_embeddings=5, embedding_dim=3)
    ids = torch.tensor([[1, 2, 4], [0, 0, 2]])
    batch = embedder(ids, torch.ones_like(ids))
    assert batch.shape == (2, 3, 3)
    torch.testing.assert_close(embedder(ids[0], torch.ones(3)), batch[0])


def test_built_without_storage_and_filled_from_saved_weights(vectors: str) -> None:
    tokenizer = tokenizer_of("good film")
    params = fill_defaults(TokenEmbedder, {"type": "static", "vectors": vectors})
    params.pop("type")
    embedder = build(tokenizer, vectors=vectors)
    with torch.device("meta"):
        again = StaticEmbedder(**StaticEmbedder.resolve(params, tokenizer))
    again.load_state_dict(copy.deepcopy(embedder.state_dict()), assign=True)
    torch.testing.assert_close(again.weight, embedder.weight)


def test_mistakes_say_what_to_do(vectors: str) -> None:
    tokenizer = tokenizer_of("good film")
    with pytest.raises(UserError, match="expected 2, the dimension of"):
        build(tokenizer, vectors=vectors, embedding_dim=3)
    with pytest.raises(UserError, match="none of the 2 words"):
        build(tokenizer_of("GOOD FILM"), vectors=vectors)
    with pytest.raises(UserError, match="no such file"):
        build(tokenizer, vectors=vectors + ".gz")
    assert {each.path for each in check(TokenEmbedder, {"type": "static", "member": "a"})} == {
        "member"
    }
    (problem,) = check(TokenEmbedder, {"type": "static", "num_embeddings": 3})
    assert "handed over" in str(problem)
    with pytest.raises(ValueError, match="embedding_dim"):
        StaticEmbedder(num_embeddings=3, embedding_dim=0)
    with pytest.raises(
        ValueError, match='unknown: expected "zero" or "mean" or "random", found "ave'
    ):
        StaticEmbedder(num_embeddings=3, unknown="average")


def test_words_without_a_vector_have_rows_that_learn(vectors: str) -> None:
    tokenizer = tokenizer_of("good film strange odd")
    embedder: Any = build(tokenizer, vectors=vectors, own_rows=True)
    embedder.own_rows.learned.sparse = True
    assert embedder.trainable
    assert not embedder.weight.requires_grad
    before = rows(embedder, tokenizer, "good film strange odd never-seen")
    assert not before[2:].any()  # begun at what words without a vector have
    ids = torch.tensor(tokenizer("good strange never-seen")["input_ids"])
    optimizer = torch.optim.SparseAdam(embedder.own_rows.parameters(), lr=0.1)
    embedder(ids, torch.ones_like(ids)).sum().backward()
    gradient = embedder.own_rows.learned.weight.grad.coalesce()
    assert gradient.values().tolist() == [[1, 1], [1, 1]]  # of the two alone that have no vector
    optimizer.step()
    after = rows(embedder, tokenizer, "good film strange odd never-seen")
    assert (after - before).allclose(torch.tensor([[0.0], [0], [-0.1], [0], [-0.1]]))
    assert not rows(embedder, tokenizer, "[PAD]").any()


def test_they_are_saved_and_built_without_storage(vectors: str) -> None:
    tokenizer = with_unknown_words(tokenizer_of("good film strange odd"), None, 50)
    params = fill_defaults(
        TokenEmbedder,
        {"type": "static", "vectors": vectors, "own_rows": True, "ngram_buckets": 50},
    )
    params.pop("type")
    resolved = StaticEmbedder.resolve(params, tokenizer)
    embedder = StaticEmbedder(**resolved)
    resolved |= embedder.load_pretrained(params, tokenizer)
    assert resolved["num_rows"] == 3  # with [UNK]
    with torch.device("meta"):
        again = StaticEmbedder(**resolved)
    again.load_state_dict(copy.deepcopy(embedder.state_dict()), assign=True)
    ids, ngrams = torch.tensor([2, 4, 1, 0]), torch.tensor([[2, *character_ngrams("goods", 50)]])
    found = again(ids, torch.ones(4), ngrams)
    assert torch.equal(found, embedder(ids, torch.ones(4), ngrams))
    torch.testing.assert_close(found[0], torch.tensor([0.6, 0.8]))  # as the file has it
    assert found[1:3].norm(dim=1).min() > 0
    assert not found[3].any()


def test_ngrams_begin_as_ridge_regression_has_them() -> None:
    torch.manual_seed(0)
    words = ["wonder", "wonders", "wonderful", "under", "thunder", "a"]
    ngrams = torch.tensor([character_ngrams(word, 30) for word in words])
    vectors = torch.randn(6, 4)
    means = torch.zeros(6, 31)
    for row, numbers in zip(means, ngrams.tolist(), strict=True):
        kept = [number for number in numbers if number]
        for number in kept:
            row[number] += 1 / len(kept)
    expected = torch.linalg.solve(means.T @ means + RIDGE * torch.eye(31), means.T @ vectors)
    torch.testing.assert_close(fitted_ngrams(ngrams, vectors, 31), expected, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(
        functional.embedding_bag(ngrams, expected, mode="mean", padding_idx=0), means @ expected
    )
    assert not fitted_ngrams(ngrams[:0], vectors[:0], 31).any()


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"vectors": "vectors.txt", "ngram_buckets": 5}, "ngram_buckets"),
        ({"vectors": "vectors.txt", "own_rows": True, "trainable": True}, "own_rows"),
        ({"own_rows": True}, "own_rows"),
        ({"vectors": "vectors.txt", "own_rows": True, "ngram_buckets": -1}, "ngram_buckets"),
    ],
)
def test_own_rows_that_make_no_sense_are_a_problem(params: dict[str, Any], path: str) -> None:
    problems = check(TokenEmbedder, {"type": "static", **params})
    assert path in {each.path for each in problems}


def test_vectors_that_move_from_those_of_the_file(vectors: str) -> None:
    """Of the words of documents alone; a word that only the file has keeps its own."""
    file = ["good", "film", "zero"]
    tokenizer = WhitespaceTokenizer().build(["good strange"], [], file)
    embedder: Any = build(tokenizer, vectors=vectors, trainable=True)
    embedder.own_rows.learned.sparse = True
    before = rows(embedder, tokenizer, "good strange film never-seen")
    assert before[0].tolist() == pytest.approx([0.6, 0.8])
    ids = torch.tensor(tokenizer("good strange film never-seen")["input_ids"])
    optimizer = torch.optim.SparseAdam(embedder.own_rows.parameters(), lr=0.1)
    embedder(ids, torch.ones_like(ids)).sum().backward()
    assert embedder.weight.grad is None
    optimizer.step()
    after = rows(embedder, tokenizer, "good strange film never-seen")
    assert (before - after).allclose(torch.tensor([[0.1], [0.1], [0], [0.1]]))
    assert len(embedder.own_rows.learned.weight) == 1 + 3  # with [UNK]


def test_models_of_before_train_the_table_itself() -> None:
    embedder = StaticEmbedder(num_embeddings=5, embedding_dim=3, trainable=True)
    assert embedder.weight.requires_grad
    assert {*embedder.state_dict()} == {"weight"}
