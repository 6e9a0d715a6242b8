"""What every explanation can do: become a dictionary, text, a page or a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from sopa_plugin.errors import UserError
from sopa_plugin.files import plain, write_file
from sopa_plugin.interpret.markup import render, style, unpainted

SUFFIXES = {".txt": "text", ".json": "json", ".html": "html", ".htm": "html", ".svg": "svg"}
"""Forms by the suffixes of files."""


class Told:
    """Something read from a model; `told` names the attributes that its plain values have."""

    told: ClassVar[tuple[str, ...]]

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold; a score that is no number (no match) is None."""
        return {name: plain(getattr(self, name)) for name in self.told}


class Explanation(Told):
    """Something read from a model, shown in the form that its reader needs.

    Pages and pictures are static and whole in themselves: one file, no script, no request.
    In a notebook an explanation shows itself; `save` picks the form by the file's suffix.
    """

    template: ClassVar[str]
    """The file of `templates/` that lays out the page; it sees the explanation as `it`."""

    @property
    def title(self) -> str:
        """What a page or a picture is called: what is explained."""
        raise NotImplementedError

    def painted(self) -> str:
        """The explanation for a terminal, with ANSI colours."""
        raise NotImplementedError

    def to_text(self, color: bool = False) -> str:
        """The explanation for a terminal, with ANSI colours where `color`."""
        return self.painted() if color else unpainted(self.painted())

    def to_svg(self) -> str:
        """The explanation as one SVG picture."""
        raise UserError(f"{type(self).__name__} is not one picture: choose text, json or html")

    def to_json(self, indent: int | None = 2) -> str:
        """The explanation as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent, allow_nan=False)

    def html_body(self) -> str:
        """The explanation as HTML elements, without page and style."""
        return render(self.template, it=self)

    def to_html(self) -> str:
        """The explanation as a page of its own."""
        body, rules = self.html_body(), style(page=True)
        return render("page.html", title=self.title, style=rules, body=body) + "\n"

    def _repr_html_(self) -> str:
        return render("fragment.html", style=style(page=True), body=self.html_body())

    def __repr__(self) -> str:  # what a Python terminal shows, and `print`
        return self.to_text()

    def render(self, form: str, color: bool = False) -> str:
        """The explanation as `form`: text, json, html or svg.

        Raises:
            UserError: There is no such form.
        """
        match form:
            case "text":
                return self.to_text(color) + "\n"
            case "json":
                return self.to_json() + "\n"
            case "html":
                return self.to_html()
            case "svg":
                return self.to_svg()
        raise UserError(f"expected text, json, html or svg, found {form!r}")

    def save(self, path: str | Path, form: str | None = None) -> None:
        """Writes the explanation to `path` as `form`, by default by its suffix, else as text."""
        path = Path(path)
        text = self.render(form or SUFFIXES.get(path.suffix.lower(), "text"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():  # a pipe or device, which stays what it is
                path.write_text(text, encoding="utf-8")
            else:
                write_file(path.resolve(), text)
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror})") from error
