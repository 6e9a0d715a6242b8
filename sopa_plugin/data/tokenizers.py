"""Tokenizers: what makes the Hugging Face tokenizer of a data set, saved with its model.

All that is done to a text is done by that tokenizer, in training, evaluation and prediction alike:
it cuts the text, lower-cases it and splits it. So both come as steps before its own.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer

from sopa_plugin.errors import HUB_HELP, UserError, failing, shortened
from sopa_plugin.registry import Bound, LocalPath, PositiveInt, Registrable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PADDING = "[PAD]"
UNKNOWN = "[UNK]"
Vocabulary = Literal["train", "train_dev", "vectors"]
LONGEST = 30
"""Seconds that a tokenizer has to split some texts, and ..."""
SLOWEST = 10_000
"""... characters for which it has one more; those that are not damaged take a hundredth of it."""

MaxTokens = Annotated[int, Bound(at_least=1, at_most=100_000)]
"""More words than that the expression that cuts a text cannot count."""

# ASCII blanks only: words of SST hold no-break spaces, which str.split would split on.
BLANKS = r"[ \t\n\r\f\v]+"
# One alternative a kind of token, as the Penn Treebank and GloVe's vectors have them.
_WORDS = "|".join(
    [
        r"\w+?(?=n['’]t\b)",  # do of don't
        r"n['’]t\b",
        r"['’](?:s|re|ve|ll|d|m)\b",
        r"(?:\p{L}\.){2,}",  # u.s.
        r"\w+(?:[-.,/]\w+)*",  # re-imagining, 3.50, 1,000
        r"\.{2,}|-{2,}",
        r"(?=[^\w\s])\X",  # one mark, or all that an emoji is made of
    ]
)
logger = logging.getLogger(__name__)
T = TypeVar("T")


class Tokenizer(Registrable):
    """Makes the tokenizer that is saved with a model.

    Attributes:
        lowercase: whether all text is lower-cased; None leaves it to the words that have vectors
            (folded if none of them has a capital), and where there are none, as it is.
        max_tokens: how many words (separated by blanks) of a text are kept; None keeps all.
    """

    default_implementation: ClassVar[str | None] = "whitespace"
    lowercase: bool | None = None
    max_tokens: int | None = None

    def build(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterable[str]
    ) -> PreTrainedTokenizerBase:
        """A tokenizer for documents like `train` and `dev`.

        `pretrained_words` are the words that a file has a vector for (see `TokenEmbedder`), most
        frequent first where the vector file is so ordered. The words of documents come first; how
        many ids these are, `init_kwargs` hold as `document_ids`, where others follow.
        """
        raise NotImplementedError


def build_tokenizer(
    part: Tokenizer,
    train: Iterable[str],
    dev: Iterable[str],
    pretrained_words: Iterable[str] = (),
    cased: bool | None = None,
    lowercase: bool = False,
    max_tokens: int | None = None,
) -> PreTrainedTokenizerBase:
    """The tokenizer that a part makes, its case and length settled.

    Arguments:
        pretrained_words: see `Tokenizer.build`.
        cased: whether words of the vectors' file have capitals; None where there is no file.
        lowercase: `dataset.lowercase`, which goes before the part's own, if set.
        max_tokens: `dataset.max_tokens`, likewise.
    """
    if lowercase:
        part.lowercase = True
    if max_tokens is not None:
        part.max_tokens = max_tokens
    if part.lowercase is None:
        part.lowercase = cased is False
    elif cased is not None and part.lowercase is cased:
        logger.warning(
            "tokenizer.lowercase is %s, but the words of the vectors' file %s, so that many of "
            "them are not found; set it to %s, or to null, which goes by the file",
            *(("true", "have capitals", "false") if cased else ("false", "have none", "true")),
        )
    tokenizer = part.build(train, dev, pretrained_words)
    fold_and_cut(tokenizer, part.lowercase, part.max_tokens)
    return tokenizer


def fold_and_cut(
    tokenizer: PreTrainedTokenizerBase, lowercase: bool | None, max_tokens: int | None
) -> None:
    """Makes a tokenizer lower-case and cut texts first, where it does not do so already.

    Raises:
        UserError: it is no tokenizer of the library `tokenizers`, and cannot.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        if lowercase or max_tokens:
            raise UserError(
                "dataset.lowercase, dataset.max_tokens: this tokenizer can neither lower-case nor "
                "cut text; leave both out"
            )
        return
    own = backend.normalizer
    text = "A " * ((max_tokens or 0) + 1)
    done = normalized(tokenizer, text)
    steps = first_steps(
        bool(lowercase) and "A" in done,
        max_tokens if max_tokens and len(done.split()) > max_tokens else None,
    )
    if steps:
        backend.normalizer = normalizers.Sequence(steps if own is None else [*steps, own])


def normalized(tokenizer: Any, text: str) -> str:
    """What a tokenizer makes of a text, or of a word, before it splits it."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)  # of the library `tokenizers`
    normalizer = getattr(backend, "normalizer", None)
    return text if normalizer is None else str(normalizer.normalize_str(text))


def folds_case(tokenizer: Any) -> bool:
    """Whether a tokenizer makes capitals small letters."""
    return normalized(tokenizer, "A") == "a"


def first_steps(lowercase: bool, max_tokens: int | None) -> list[Any]:
    """What is done to a text before it is split: cut after so many words, and lower-cased."""
    steps: list[Any] = []
    if max_tokens is not None:
        blank = BLANKS.removesuffix("+")
        word = f"[^{blank[1:]}"
        # possessive, so that a word is counted once; `\K` keeps what was matched so far
        kept = rf"\A{blank}*+(?:{word}++(?:{blank}++|\z)){{{max_tokens}}}\K"
        steps.append(normalizers.Replace(Regex(rf"{kept}(?m:.)+"), ""))
    if lowercase:
        steps.append(normalizers.Lowercase())
    return steps


def max_tokens_of(step: dict[str, Any]) -> int | None:
    """How many words a step of a tokenizer's JSON keeps, if it is that of `first_steps`."""
    counted = re.search(r"\{(\d+)\}\\K", step.get("pattern", {}).get("Regex", ""))
    if counted is None:
        return None
    (cut,) = first_steps(False, int(counted[1]))
    same = step == json.loads(cut.__getstate__())
    return int(counted[1]) if same else None


@Tokenizer.register("whitespace")
@dataclass(eq=False)
class WhitespaceTokenizer(Tokenizer):
    """Splits text that is tokenised already, as the paper's is, on blanks; others are `[UNK]`.

    Registered as `whitespace`. Blanks are space, tab, newline, carriage return, form feed and
    vertical tab. `[PAD]` has id 0 and `[UNK]` id 1; then come the words of the documents, most
    frequent first and in order of appearance where equally frequent; then the words that only
    the vector file has, in its order. (A text's own word `[PAD]` has id 0, too: it counts as a
    token, with the vector of padding.)

    Arguments:
        lowercase: Lower-case all text; the saved tokenizer does it too, so at prediction just as in
            training. null does it where the embedder has a file of vectors without a capital.
        max_tokens: How many words (separated by blanks) of a text are kept; null keeps all.
        vocabulary: Which words are known:
            `train`: those of the training documents;
            `train_dev`: and those of the development documents (the paper's experiments);
            `vectors`: and the first `max_pretrained_words` of the vector file, so that a word
            first seen at prediction has its vector too; needs a file;
            null: `vectors` where the embedder has vectors from a file, else `train`.
        max_pretrained_words: How many words of the vector file to take at most.
        min_count: Words rarer than this in the documents are left out.
    """

    lowercase: bool | None = None
    max_tokens: MaxTokens | None = None
    vocabulary: Vocabulary | None = None
    max_pretrained_words: PositiveInt = 50_000
    min_count: PositiveInt = 1

    def build(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterable[str]
    ) -> PreTrainedTokenizerBase:
        """The tokenizer over the chosen vocabulary.

        Raises:
            UserError: `vocabulary` is `vectors` and there are no pretrained words, or there is no
                word at all.
        """
        counts: Counter[str] = Counter()
        self._count(train, counts)
        pretrained = []
        if self.vocabulary in ("vectors", None):
            # those that hold blanks can never be a token
            split = (self._words([word]) for word in pretrained_words)
            single = (words[0] for words in split if len(words) == 1)
            pretrained = list(islice(single, self.max_pretrained_words))
        if self.vocabulary == "vectors" and not pretrained:
            raise UserError(
                "tokenizer.vocabulary is 'vectors', but the embedder has no vectors from a file. "
                "Name one (embedder.vectors), or choose 'train' or 'train_dev'."
            )
        if pretrained or self.vocabulary == "train_dev":
            self._count(dev, counts)
        frequent = [word for word, count in counts.most_common() if count >= self.min_count]
        if not frequent and not pretrained:
            raise UserError(
                f"tokenizer: the vocabulary has no word: none of the {len(counts)} distinct words "
                f"of the documents comes {self.min_count} times or more (tokenizer.min_count)"
            )
        tokenizer = make_tokenizer(
            [*frequent, *pretrained], bool(self.lowercase), self.pre_tokenizer(), self.max_tokens
        )
        if pretrained:
            tokenizer.init_kwargs["document_ids"] = len({PADDING, UNKNOWN, *frequent})
        return tokenizer

    @staticmethod
    def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
        """What splits text into words."""
        return pre_tokenizers.Split(Regex(BLANKS), "removed")

    def _count(self, documents: Iterable[str], counts: Counter[str]) -> None:
        for some in in_batches(documents):
            counts.update(self._words(some))

    def _words(self, documents: Sequence[str]) -> list[str]:
        """The words of documents, as the built tokenizer will see them."""
        # bytes are split on ASCII blanks alone
        return [word.decode() for word in self._prepared(documents).encode().split()]

    def _prepared(self, documents: Sequence[str]) -> str:
        """The documents as one, cut and lower-cased."""
        steps = first_steps(bool(self.lowercase), self.max_tokens)
        if not steps:
            return "\n".join(documents)
        normalizer = normalizers.Sequence(steps)
        if self.max_tokens is None:
            return str(normalizer.normalize_str("\n".join(documents)))
        return "\n".join(map(normalizer.normalize_str, documents))


@Tokenizer.register("words")
class WordTokenizer(WhitespaceTokenizer):
    """Splits running text into words and punctuation; other words than the known are `[UNK]`.

    Registered as `words`. Punctuation is a token by itself, contractions are split as in the Penn
    Treebank (`do n't`, `it 's`), and what joins words or numbers (`re-imagining`, `3.50`) joins
    them; an emoji of several characters is one token. The vocabulary is that of `whitespace`, and
    so are the arguments.
    """

    @staticmethod
    @functools.cache  # the expression takes a millisecond to compile
    def pre_tokenizer() -> pre_tokenizers.PreTokenizer:
        """What splits text into words."""
        return pre_tokenizers.Split(Regex(f"(?i){_WORDS}"), "removed", invert=True)

    def _words(self, documents: Sequence[str]) -> list[str]:
        text = self._prepared(documents)
        return [word for word, _ in self.pre_tokenizer().pre_tokenize_str(text)]


@Tokenizer.register("pretrained")
@dataclass(eq=False)
class PretrainedTokenizer(Tokenizer):
    """The tokenizer of a pretrained model; belongs with the `transformer` embedder.

    Registered as `pretrained`. Its word pieces are the automaton's tokens, the special tokens that
    it adds around a document (`[CLS]`, `[SEP]`) among them. Documents may have any length.

    Arguments:
        model: A folder or a Hub id; the same as the embedder's `model`.
        lowercase: Lower-case all text before; null and false leave case to the tokenizer.
        max_tokens: How many words (separated by blanks) of a text are kept; null keeps all.
    """

    model: LocalPath
    lowercase: bool | None = None
    max_tokens: MaxTokens | None = None

    def build(
        self, train: Iterable[str], dev: Iterable[str], pretrained_words: Iterable[str]
    ) -> PreTrainedTokenizerBase:
        """The tokenizer as published, but for its length limit; the documents do not change it.

        Raises:
            UserError: There is no such tokenizer, or the Hub is out of reach.
        """
        from transformers import AutoTokenizer
        from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

        expected = "expected a folder with the files of a tokenizer (tokenizer.json), or a Hub id"
        with failing("tokenizer.model", f"no tokenizer from '{self.model}'; {expected}", HUB_HELP):
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(self.model)
        # the embedder takes documents of any length: no warning, and nothing cut off
        tokenizer.model_max_length = VERY_LARGE_INTEGER
        return tokenizer


def bounded(split: Callable[[list[Any]], T], texts: list[Any]) -> T:
    """What `split` gives of `texts`: a call of a tokenizer in batches, or it would stop all else.

    A saved tokenizer may hold any regular expression. The library gives up one that takes too long
    at one place of a text, which may be nearly so at each; here all of it has its time.

    Raises:
        UserError: it takes so long, or the library cannot split a text.
    """
    found: Future[T] = Future()

    def call() -> None:
        try:
            found.set_result(split(texts))
        except BaseException as error:
            found.set_exception(error)

    Thread(target=call, daemon=True).start()
    try:
        for _ in range(LONGEST + sum(map(len, texts)) // SLOWEST):
            if wait([found], timeout=1).done:  # seconds in which the process rests do not count
                return found.result()
        raise UserError("the tokenizer takes too long to split a text; it is damaged")
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"the tokenizer cannot split a text ({error}); it is damaged") from error


def check_normalizer(backend: FastTokenizer) -> None:
    """Raises `UserError` where `normalized` might take for ever: see `bounded`, where it is not."""
    steps = json.loads(backend.normalizer.__getstate__()) if backend.normalizer else {}
    for step in steps.get("normalizers", [steps]):
        if "Regex" in json.dumps(step) and max_tokens_of(step) is None:
            raise UserError(
                "a tokenizer that tells unknown words apart may not replace a regular expression "
                f"before it splits a text, as by {shortened(json.dumps(step))}"
            )


def make_tokenizer(
    words: Iterable[str],
    lowercase: bool = False,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    max_tokens: int | None = None,
) -> PreTrainedTokenizerFast:
    """A tokenizer that numbers `words` from 2 in their order, and splits on blanks by default."""
    from transformers import PreTrainedTokenizerFast

    vocabulary = {PADDING: 0, UNKNOWN: 1}
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    backend = FastTokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizer or WhitespaceTokenizer.pre_tokenizer()
    if steps := first_steps(lowercase, max_tokens):
        backend.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        # "[PAD]" written in a text is not cut out of the word that it stands in.
        split_special_tokens=True,
        model_input_names=["input_ids", "attention_mask"],
    )


def in_batches(texts: Iterable[Any], size: int = 1000) -> Iterator[list[Any]]:
    """The texts, some at a time; a column of `datasets` is slow one by one."""
    if isinstance(texts, Sequence):
        for start in range(0, len(texts), size):
            yield list(texts[start : start + size])
    else:
        rest = iter(texts)
        while some := list(islice(rest, size)):
            yield some
