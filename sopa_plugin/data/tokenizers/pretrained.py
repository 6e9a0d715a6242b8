"""The tokenizer that a pretrained transformer came with."""

from __future__ import annotations

from collections.abc import Iterable

from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from sopa_plugin.data.tokenizers.tokenizer import Tokenizer
from sopa_plugin.errors import HUB_HELP, UserError
from sopa_plugin.registry import LocalPath


@Tokenizer.register("pretrained")
class PretrainedTokenizer(Tokenizer):
    """The tokenizer of a pretrained model; belongs with the `transformer` embedder.

    Registered as `pretrained`. Its word pieces are the automaton's tokens, the special tokens that
    it adds around a document (`[CLS]`, `[SEP]`) among them. Documents may have any length.

    Arguments:
        model: A folder or a Hub id; the same as the embedder's `model`.
    """

    def __init__(self, model: LocalPath) -> None:
        self.model = model

    def build(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterable[str]
    ) -> PreTrainedTokenizerBase:
        """The tokenizer as published, but for its length limit; the documents do not change it.

        Raises:
            UserError: There is no such tokenizer, or the Hub is out of reach.
        """
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.model)
        except (OSError, ValueError, ImportError) as error:
            raise UserError(
                f"tokenizer.model: no tokenizer from '{self.model}'. Expected a folder "
                f"with the files of a tokenizer (tokenizer.json), or a Hub id. {HUB_HELP}. "
                f"Found: {error}"
            ) from error
        # the embedder takes documents of any length: no warning, and nothing cut off
        tokenizer.model_max_length = VERY_LARGE_INTEGER
        return tokenizer
