"""The command `predict`: predictions for a stream of lines."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from io import BytesIO
from typing import BinaryIO

import numpy as np
import pytest

from sopa_plugin.data.stream import BLOCK, open_documents
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model
from sopa_plugin.predict import predict_stream


class ByLength(Model):
    """Says `long` with the probability length / (1 + length)."""

    labels = ["short", "long"]  # noqa: RUF012

    def __init__(self) -> None:
        self.largest = 0

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        self.largest = max(self.largest, len(texts))
        lengths = np.array([len(text) for text in texts])
        return np.log(np.stack([1 / (1 + lengths), lengths / (1 + lengths) + 1e-300], axis=1))


def answer(
    source: BinaryIO, output: BinaryIO, format: str | None, model: Model, workers: int = 1
) -> None:
    with open_documents(source, "input", format) as documents:
        predict_stream(model, documents, output, workers)


def predict(data: bytes, format: str | None = None) -> list[dict]:
    output = io.BytesIO()
    answer(io.BytesIO(data), output, format, ByLength())
    return [json.loads(line) for line in output.getvalue().split(b"\n")[:-1]]


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
        (b'{"text": 1\n', ['{"text": 1']),
        (b'{"text": "a"}\n\n{"text": null}\n', ["a", None]),
    ],
    ids=["empty", "one-empty", "no-end", "crlf", "bom", "odd-separators", "long", "brace", "json"],
)
def test_lines_as_they_come(data: bytes, texts: list[str]) -> None:
    assert [answer["text"] for answer in predict(data)] == texts


def test_a_gold_label_is_kept() -> None:
    first, second = predict(b'{"text": "a", "label": "gold"}\n{"text": "b"}\n')
    assert list(first) == ["text", "label", "predicted_label", "probabilities"]
    assert first["label"] == "gold"
    assert list(second) == ["text", "predicted_label", "probabilities"]  # as in rows before
    (again,) = predict(json.dumps(first).encode())
    assert {key: again[key] for key in first} == first
    assert again["predicted_predicted_label"] == first["predicted_label"]
    assert again["predicted_probabilities"] == first["probabilities"]


def test_json_lines_keep_their_keys() -> None:
    answers = predict(b'{"id": 7, "text": "ab"}\n{"text": ""}\n')
    assert [answer["label"] for answer in answers] == ["long", "short"]
    assert answers[0]["id"] == 7
    assert list(answers[0]) == ["id", "text", "label", "probabilities"]


def test_an_object_stays_as_it_was_written() -> None:
    lines = [
        rb' {"n": [1.0, 1e400, {"deep": null}], "text" : "caf\u00e9", "id": 7.50} ',
        b'{"text":"", "half": "\\udc00", "deep": ' + b"[" * 500 + b"]" * 500 + b"}",
    ]
    output = io.BytesIO()
    answer(io.BytesIO(b"\r\n".join(lines)), output, "jsonl", ByLength())
    for line, written in zip(lines, output.getvalue().splitlines(), strict=True):
        assert written.startswith(line.rstrip().removesuffix(b"}") + b', "label": "')


def test_lines_are_those_of_json() -> None:
    class Odd(ByLength):
        labels = ['50 % "off"', "\u2028é\n%s"]  # noqa: RUF012

    output = io.BytesIO()
    answer(io.BytesIO('a "b" %s\\ \t\x01\u2028é'.encode()), output, "text", Odd())
    (line,) = output.getvalue().decode().split("\n")[:-1]
    assert line == json.dumps(json.loads(line), ensure_ascii=False)
    assert list(json.loads(line)["probabilities"]) == Odd.labels


def test_escapes_that_are_characters_are_taken() -> None:
    (answer,) = predict(b'{"text": "\\ud83d\\ude00 \\u00e0"}\n')
    assert answer["text"] == "\U0001f600 à"


def test_lines_beyond_a_block_stay_in_order_and_memory_is_bounded() -> None:
    model, output = ByLength(), io.BytesIO()
    lines = [f"line {number}" for number in range(30_000)]
    answer(io.BytesIO("\n".join(lines).encode()), output, None, model)
    answers = [json.loads(line)["text"] for line in output.getvalue().split(b"\n")[:-1]]
    assert answers == lines
    assert model.largest <= BLOCK // len("line 0")


def test_numbers_are_those_of_the_model() -> None:
    shares = np.concatenate([10.0 ** -np.arange(0, 310.0), np.random.default_rng(0).random(1000)])

    class Odd(ByLength):
        def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
            with np.errstate(divide="ignore"):
                return np.maximum(np.log(np.stack([shares, 1 - shares], axis=1)), -1e4)

    output = io.BytesIO()
    answer(io.BytesIO(b"x\n" * len(shares)), output, "text", Odd())
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    expected = np.exp(Odd().log_probabilities([]))
    assert [list(line["probabilities"].values()) for line in lines] == expected.tolist()


@pytest.mark.parametrize("end", [b"", b"caf\xe9\n"], ids=["whole", "faulty"])
def test_any_number_of_workers_writes_the_same(end: bytes) -> None:
    data = b"".join(b"line %d\n" % number for number in range(200_000)) + end
    assert len(data) > 8 * BLOCK
    written = []
    for workers in (1, 2, 5):
        output = io.BytesIO()
        with pytest.raises(UserError, match="200001") if end else nullcontext():
            answer(io.BytesIO(data), output, "text", ByLength(), workers)
        written.append(output.getvalue())
    assert written[0].count(b"\n") == 200_000
    assert written[1] == written[2] == written[0]


def test_a_line_is_answered_before_the_next_is_written() -> None:
    read, write = os.pipe()
    answers, end = os.pipe()
    with os.fdopen(read, "rb") as source, os.fdopen(end, "wb") as output:
        thread = threading.Thread(target=answer, args=(source, output, None, ByLength()))
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
        (b"fine\ncaf\xe9\n", None, r"input:2: not UTF-8 \(byte 0xe9\)"),
        (b'{"text": "a"}\n{"text": \n', None, "input:2: not JSON"),
        (
            b'{"text": "a"}\n{"words": "a"}\n',
            None,
            "input:2: expected one column 'text'; .*'words'",
        ),
        (b"plain\n", "jsonl", "input:1: not JSON"),
        (b'{"text": "a"}\n{"text": "\\ud800 film"}\n', None, "input:2: .* surrogate pair"),
        (b'{"text": "\\ud800 film"}\n', None, r"input:1: .* \('\\ud800'\)"),
        (b'{"text": "a"}\n' + b"[" * 100_000 + b"\n", None, "input:2: not JSON"),
        (b'{"text": "a"}\n{"text": "b", "n": -Infinity}\n', None, "input:2: .*Infinity"),
        (b'{"text": "a"}\n{"text": "b", "n": NaN}\n', None, "input:2: .*NaN"),
        (b'{"message": "a"}\n', None, "input:1: .*'message'. Give --text-column"),
        (b'{"text": 1}\n', None, "input:1: 'text' is not text: 1"),
        (
            b'{"text": "a"}\n{"text": "b", "text": "c"}\n',
            None,
            "input:2: .*key 'text' is given twice",
        ),
    ],
)
def test_a_faulty_line_is_named_and_those_before_it_are_answered(
    data: bytes, format: str | None, message: str
) -> None:
    output = io.BytesIO()
    with pytest.raises(UserError, match=message):
        answer(io.BytesIO(data), output, format, ByLength())
    assert output.getvalue().count(b"\n") == message.startswith("input:2")


def test_json_lines_hold_nothing_that_a_terminal_obeys() -> None:
    """DEL, C1 controls and bidirectional overrides are escaped, and read back as they were."""
    text = "a\x1b[2J\x7f \x9b31m \u202eb \u2069 é – 👍"
    document = BytesIO(json.dumps({"text": text, "n\x9b": 1}, ensure_ascii=False).encode())
    with open_documents(document, "in.jsonl", "jsonl") as documents:
        answers = documents.answered(lambda texts: np.full((len(texts), 2), 0.5), ["\u202e", "b"])
        written = b"".join(answers).decode()
    assert written[:-1].isprintable()
    assert json.loads(written)["text"] == text
    assert json.loads(written)["probabilities"] == {"\u202e": 0.5, "b": 0.5}
