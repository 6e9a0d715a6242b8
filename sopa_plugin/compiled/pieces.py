"""Text to token ids, by any tokenizer of the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor


class Pieces:
    """Tokenizes as a model's own tokenizer does, without transformers.

    Arguments:
        tokenizer: the whole tokenizer as JSON, as `tokenizer.json` has it.
        split_special_tokens: whether special tokens that a text spells out are ordinary text.
    """

    def __init__(self, tokenizer: str, split_special_tokens: bool) -> None:
        self.tokenizer = tokenizer
        self.split_special_tokens = split_special_tokens
        self._tokenizer = Tokenizer.from_str(tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = split_special_tokens

    def encode(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Ids of all tokens `[M]` of the documents, and where each starts in them `[B + 1]`."""
        pieces = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]
        offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
        np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
        ids = np.fromiter(chain.from_iterable(pieces), np.int64, int(offsets[-1]))
        return torch.from_numpy(ids), torch.from_numpy(offsets)
