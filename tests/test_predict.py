"""The command `predict`: predictions for a stream of lines."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from sopa_plugin.data.stream import BLOCK
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model
from sopa_plugin.predict import predict_stream

DEEP = b"[" * 990 + b"]" * 990  # read by a short stack, written by a longer one


class ByLength(Model):
    """Says `long` with the probability length / (1 + length)."""

    labels = ["short", "long"]  # noqa: RUF012

    def __init__(self) -> None:
        self.largest = 0

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        self.largest = max(self.largest, len(texts))
        lengths = np.array([len(text) for text in texts])
        return np.log(np.stack([1 / (1 + lengths), lengths / (1 + lengths) + 1e-300], axis=1))


def predict(data: bytes, format: str = "auto") -> list[dict]:
    output = io.StringIO()
    predict_stream(ByLength(), io.BytesIO(data), output, format)  # type: ignore[arg-type]
    return [json.loads(line) for line in output.getvalue().split("\n")[:-1]]


def test_text_lines_in_order() -> None:
    answers = predict("abc\n\nà\n".encode())
    assert [answer["text"] for answer in answers] == ["abc", "", "à"]
    assert [answer["label"] for answer in answers] == ["long", "short", "short"]
    assert answers[0]["probabilities"] == pytest.approx({"short": 0.25, "long": 0.75})


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\xef\xbb\xbfa\nb", ["a", "b"]),
        ("a\u2028b\x85c\x0cd\n".encode(), ["a\u2028b\x85c\x0cd"]),
        (b"x" * (3 * BLOCK) + b"\ny", ["x" * (3 * BLOCK), "y"]),
        (b'{"text": 1}\n', ['{"text": 1}']),
    ],
    ids=["empty", "one-empty", "no-end", "crlf", "bom", "odd-separators", "long", "brace"],
)
def test_lines_as_they_come(data: bytes, texts: list[str]) -> None:
    assert [answer["text"] for answer in predict(data)] == texts


def test_a_gold_label_is_kept() -> None:
    (answer,) = predict(b'{"text": "a", "label": "gold"}')
    assert list(answer) == ["text", "input_label", "label", "probabilities"]
    assert answer["input_label"] == "gold"
    (again,) = predict(json.dumps(answer).encode())
    assert again["input_label"] == "gold"
    assert again["input_input_label"] == answer["label"]


def test_json_lines_keep_their_keys() -> None:
    answers = predict(b'{"id": 7, "text": "ab"}\n{"text": ""}\n')
    assert [answer["label"] for answer in answers] == ["long", "short"]
    assert answers[0]["id"] == 7
    assert list(answers[0]) == ["id", "text", "label", "probabilities"]


def test_keys_that_an_answer_has_too_are_kept_under_another_name() -> None:
    (answer,) = predict(b'{"text": "ab", "label": "given", "probabilities": 7}\n')
    assert answer["label"] == "long"
    assert answer["input_label"] == "given"
    assert answer["input_probabilities"] == 7


def test_escapes_that_are_characters_are_taken() -> None:
    (answer,) = predict(b'{"text": "\\ud83d\\ude00 \\u00e0"}\n')
    assert answer["text"] == "\U0001f600 à"


def test_lines_beyond_a_block_stay_in_order_and_memory_is_bounded() -> None:
    model, output = ByLength(), io.StringIO()
    lines = [f"line {number}" for number in range(30_000)]
    predict_stream(model, io.BytesIO("\n".join(lines).encode()), output)
    answers = [json.loads(line)["text"] for line in output.getvalue().split("\n")[:-1]]
    assert answers == lines
    assert model.largest <= BLOCK // len("line 0")


def test_a_line_is_answered_before_the_next_is_written() -> None:
    read, write = os.pipe()
    answers, answer = os.pipe()
    with os.fdopen(read, "rb") as source, os.fdopen(answer, "w") as output:
        thread = threading.Thread(target=predict_stream, args=(ByLength(), source, output))
        thread.start()
        with os.fdopen(answers) as reader:
            os.write(write, b"first\n")
            assert json.loads(reader.readline())["text"] == "first"
            os.write(write, b"second\n")
            assert json.loads(reader.readline())["text"] == "second"
            os.close(write)
            thread.join()


@pytest.mark.parametrize(
    ("data", "format", "message"),
    [
        (b"fine\ncaf\xe9\n", "auto", r"input line 2: not UTF-8 \(byte 0xe9\)"),
        (b'{"text": "a"}\n{"text": \n', "auto", "input line 2: not JSON"),
        (b'{"text": "a"}\n{"words": "a"}\n', "auto", 'input line 2: expected an object .* "text"'),
        (b"plain\n", "json", "input line 1: not JSON"),
        (b'{"text": "a"}\n{"text": "\\ud800 film"}\n', "auto", "input line 2: .* surrogate pair"),
        (b'{"text": "\\ud800 film"}\n', "auto", r"input line 1: .* \('\\ud800'\)"),
        (b'{"text": "a"}\n{"text": "b", "id": "\\udc00"}\n', "json", "input line 2: .* surrogate"),
        (b'{"text": "a"}\n\n{"text": "b"}\n', "auto", 'input line 2: blank, .* {"text": ""}'),
        (b'{"text": "a"}\n' + b"[" * 100_000 + b"\n", "auto", "input line 2: not JSON"),
        (b'{"text": "a"}\n{"text": "b", "n": ' + DEEP + b"}\n", "auto", "input line 2: n"),
        (b'{"text": "a"}\n{"text": "b", "n": 1e400}\n', "auto", "input line 2: .*1e400"),
        (b'{"text": "a"}\n{"text": "b", "n": -Infinity}\n', "auto", "input line 2: .*Infinity"),
        (b'{"text": "a"}\n{"text": "b", "n": NaN}\n', "auto", "input line 2: .*NaN"),
    ],
)
def test_a_faulty_line_is_named_and_those_before_it_are_answered(
    data: bytes, format: str, message: str
) -> None:
    output = io.StringIO()
    with pytest.raises(UserError, match=message):
        predict_stream(ByLength(), io.BytesIO(data), output, format)  # type: ignore[arg-type]
    assert output.getvalue().count("\n") == ("line 2" in message)
