from __future__ import annotations

import torch

from sopa_plugin.encoders import DanEncoder


def test_averages_the_words_of_a_document() -> None:
    encoder = DanEncoder(input_dim=2).eval()
    tokens = torch.tensor([[[1.0, 2.0], [3.0, 6.0]], [[4.0, 5.0], [9.0, 9.0]]])
    document = encoder(tokens, torch.tensor([[1, 1], [1, 0]]))
    assert document.tolist() == [[2.0, 4.0], [4.0, 5.0]]


def test_drops_whole_words_in_training() -> None:
    torch.manual_seed(0)
    encoder = DanEncoder(input_dim=2, word_dropout=0.3)
    # word t is (1, 2 ** t): an average of kept words keeps its first number
    tokens = torch.stack([torch.ones(10), 2.0 ** torch.arange(10)], dim=1).repeat(2000, 1, 1)
    document = encoder(tokens, torch.ones(2000, 10))
    torch.testing.assert_close(document[:, 0], torch.ones(2000))
    assert len(document[:, 1].unique()) > 500
    # how often the only word of a document is dropped, and nothing is left
    dropped = encoder(tokens[:, :1], torch.ones(2000, 1))[:, 0] == 0
    assert 0.25 < dropped.float().mean() < 0.35


def test_drops_nothing_at_rate_zero() -> None:
    encoder = DanEncoder(input_dim=3, word_dropout=0.0)
    tokens, mask = torch.randn(4, 5, 3), torch.ones(4, 5)
    torch.testing.assert_close(encoder(tokens, mask), encoder.eval()(tokens, mask))
