"""One labelled text, and what is done to texts before anything else sees them."""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from sopa_plugin.data.characters import check_encodable

# Only these separate words: SST has words with a no-break space inside.
BLANK_CHARACTERS = " \t\n\r\f\v"
_WORD = re.compile(rf"[^{BLANK_CHARACTERS}]+")


class Example(NamedTuple):
    """A text with its class name and the place it was read from."""

    text: str
    label: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """`file:line`, counted from 1; for tables without lines, the row."""
        return f"{self.file}:{self.line}"


def clean_text(example: Example, lowercase: bool, max_tokens: int | None) -> Example:
    """The example without blanks at its ends, lower-cased and cut to `max_tokens` words.

    Words are separated by ASCII blanks; those between the words that stay are left as they are.
    """
    text = example.text.strip(BLANK_CHARACTERS)
    if not text.isascii():
        check_encodable(text, example.where)
    if lowercase:
        text = text.lower()
    if max_tokens is not None:
        last = list(islice(_WORD.finditer(text), max_tokens))[-1:]
        text = text[: last[0].end()] if last else ""
    return example._replace(text=text)
