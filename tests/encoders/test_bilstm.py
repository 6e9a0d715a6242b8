from __future__ import annotations

import pytest
import torch

from sopa_plugin.encoders import BilstmEncoder


def test_averages_the_hidden_states_of_each_document_alone() -> None:
    torch.manual_seed(0)
    encoder = BilstmEncoder(input_dim=3, hidden_dim=4)
    lengths = [2, 6, 1]
    tokens = torch.randn(3, 6, 3)
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    document = encoder(tokens, mask)
    both = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=True)
    ahead, back = encoder.forward_lstm.state_dict(), encoder.backward_lstm.state_dict()
    both.load_state_dict(ahead | {f"{name}_reverse": each for name, each in back.items()})
    for row, length in enumerate(lengths):
        states, _ = both(tokens[row : row + 1, :length])
        torch.testing.assert_close(document[row], states[0].mean(dim=0))


def test_one_step_by_hand() -> None:
    encoder = BilstmEncoder(input_dim=1, hidden_dim=1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        # gates i, f, g, o: all open by half, but the forward candidate is tanh(v)
        encoder.forward_lstm.weight_ih_l0[2] = 1.0
    forward = 0.5 * (0.5 * torch.tensor(2.0).tanh()).tanh()
    document = encoder(torch.tensor([[[2.0]]]), torch.ones(1, 1))
    torch.testing.assert_close(document, torch.stack([forward, torch.tensor(0.0)])[None])


def test_an_empty_document_is_zero() -> None:
    encoder = BilstmEncoder(input_dim=3)
    assert not encoder(torch.randn(2, 4, 3), torch.zeros(2, 4)).any()


@pytest.mark.parametrize(("hidden", "count"), [(300, 1_444_800), (200, 803_200)])
def test_size_is_that_of_the_paper(hidden: int, count: int) -> None:
    # with the MLP of 100 hidden units: 1.5M and 844K, as in the paper's table
    encoder = BilstmEncoder(input_dim=300, hidden_dim=hidden)
    assert sum(each.numel() for each in encoder.parameters()) == count
