"""What is no character, wherever a text comes from."""

from __future__ import annotations

from sopa_plugin.errors import UserError


def check_encodable(text: str, where: str) -> None:
    """JSON can spell half of a surrogate pair, which is no character and cannot be stored.

    Raises `UserError` that begins with `where`, the place of the text (`file:line`).
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: the text has half of a surrogate pair ({text[error.start]!a}), "
            "which is no character; repair this line or take it out."
        ) from None
