"""Odd files and overrides: each outcome is a config, or one short error that says where and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sopa_plugin.registry import ConfigError, check, load_config
from sopa_plugin.training import Experiment

LOAD = "local env = std.native('env'); "
DEEP = "[" * 100_000 + "]" * 100_000
LONG = "x" * 3_000_000


def error_of(file: Path, content: str | bytes, *overrides: str) -> str:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(file, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{\n a:\u00a01}", ":2:4: an invisible character (no-break space, U+00A0)"),
        ("{\u200ba: 1}", "(zero width space, U+200B); delete it"),
        ("{a: 'é', b: “x”}", ":1:14: “ (left double quotation mark, U+201C) outside of quotes"),
        ("{a: –1}", "(en dash, U+2013) outside of quotes; write -"),
        (b"{a:\n \0 1}", ":2: a NUL character"),
        ("{a: 1e400}", "the number is too large"),
        ("local f(n) = if n == 0 then 1 else {a: f(n - 1)}; f(200)", "nested more than 100 levels"),
        ("{a: " + DEEP + "}", "depth limit"),
        (LOAD + "{a: env('A')}", "takes the variable's name and a default"),
        (LOAD + "{a: env('A', {b: 1})}", "takes the variable's name and a default"),
        (LOAD + "{a: env(1, 2)}", "takes the variable's name and a default"),
        ("{a: std.extVar('A')}", "reads the environment"),
    ],
)
def test_jsonnet_says_what_is_wrong(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert says in error_of(tmp_path / "odd.jsonnet", content)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{“a”: 1}", ":1:2: not JSON: “ (left double quotation mark"),
        ('{"a":\u00a01}', "an invisible character (no-break space"),
        (b'{"a": \0 1}', ":1: a NUL character"),
        ('{"a": ' + DEEP + "}", "nested without end"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "nested more than 100 levels"),
        ('{"a": [-1e400]}', "-1e400 is no JSON number, or too large for one"),
        ('{"a": Infinity}', "Infinity is no JSON number"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5000 digits is too large"),
    ],
)
def test_json_says_what_is_wrong(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert says in error_of(tmp_path / "odd.json", content)


def test_an_imported_file_is_read_as_a_config_is(tmp_path: Path) -> None:
    main, library = tmp_path / "main.jsonnet", tmp_path / "lib.libsonnet"
    main.write_text("import 'lib.libsonnet'")
    library.write_bytes(b"\xef\xbb\xbf{a: 'na\xc3\xafve'}")
    assert load_config(main) == {"a": "naïve"}
    library.write_bytes(b"{\n a: 'na\xefve'}")
    assert f"{library}:2: not UTF-8" in error_of(main, "import 'lib.libsonnet'")
    library.write_text("{a: «x»}")
    assert f"{library}:1:5: «" in error_of(main, "import 'lib.libsonnet'")
    assert "Is a directory" in error_of(main, f"import '{tmp_path}'")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_the_memory_of_a_config_is_bounded(tmp_path: Path) -> None:
    text = "local f(n) = if n == 0 then 'abcd' else local half = f(n - 1); half + half; {a: f(27)}"
    assert "too much memory" in error_of(tmp_path / "bomb.jsonnet", text)
    items = "{a: std.makeArray(100000000, function(i) i)}"
    assert "too much memory" in error_of(tmp_path / "bomb.jsonnet", items)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("a={type: 'mlp'}", "property name enclosed in double quotes"),
        ('a={"b": 1,}', "is not JSON"),
        ('a="mlp', "Unterminated string"),
        ("a=[1, 2", "is not JSON"),
        ("a=01", "is not JSON"),
        ('a={"b": 1, "b": 2}', "'b' is given twice"),
        ("a=1e400", "too large"),
        ('a={"b": NaN}', "NaN is no JSON number"),
        (f"a={DEEP}", "nested without end"),
        ("a." * 5000 + "b=1", "not an override"),
        (LONG, "not an override"),
        (f"{LONG}={{", "is not JSON"),
    ],
)
def test_an_override_that_is_nearly_json(tmp_path: Path, override: str, says: str) -> None:
    message = error_of(tmp_path / "a.json", "{}", override)
    assert says in message
    assert len(message) < 5000


def test_no_message_is_long(tmp_path: Path) -> None:
    config: dict[str, Any] = {"dataset": LONG, "model": {"type": LONG}, LONG: 1}
    config |= {f"key{number}": number for number in range(1000)}
    message = str(ConfigError(check(Experiment, config), source="odd.json"))
    assert "odd.json has 100" in message
    assert "more lines" in message
    assert len(message) < 30_000
    assert len(error_of(tmp_path / "a.jsonnet", f"error '{LONG}'")) < 2000


KEYS = st.sampled_from(
    ["dataset", "model", "trainer", "type", "encoder", "patterns", "optimizer", "lr", "seed", "0"]
)
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["sopa", "static", "sst", "text_classifier", "a.b", "\x1b[2J", "1e400", ""]),
)  # fmt: skip
VALUES = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    config=st.dictionaries(KEYS, VALUES, max_size=4),
    keys=st.lists(KEYS, min_size=1, max_size=4),
    value=VALUES.map(json.dumps) | st.text(max_size=12),
)
@example(config={"seed": float("inf")}, keys=["seed"], value="-1e999")
@example(config={}, keys=["model", "0", "type"], value="null")
def test_any_config_and_override_has_an_outcome(
    tmp_path: Path, config: dict[str, Any], keys: list[str], value: str
) -> None:
    file = tmp_path / "random.json"
    file.write_text(json.dumps(config))
    try:
        changed = load_config(file, [f"{'.'.join(keys)}={value}"], Experiment)
    except ConfigError:
        return
    assert json.loads(json.dumps(changed, allow_nan=False)) == changed
    check(Experiment, changed)
