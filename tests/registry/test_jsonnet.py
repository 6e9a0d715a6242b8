"""Config files: Jsonnet and JSON, environment variables, imports, errors with file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sopa_plugin.registry import ConfigError, load_config


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes, name: str = "config.jsonnet") -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return file

    return write


class TestEnvironment:
    @pytest.mark.parametrize(
        ("default", "value", "expected"),
        [
            ("'fixtures/sst'", None, "fixtures/sst"),
            ("'fixtures/sst'", "", "fixtures/sst"),
            ("'fixtures/sst'", "/data/sst", "/data/sst"),
            ("'1'", "25", "25"),
            ("null", None, None),
            ("null", "25", "25"),
            ("150", None, 150),
            ("150", "25", 25),
            ("0.5", "1e-3", 0.001),
            ("true", "false", False),
        ],
    )
    def test_a_variable_or_its_default(self, write, monkeypatch, default, value, expected) -> None:
        monkeypatch.delenv("SOPA_TEST", raising=False)
        if value is not None:
            monkeypatch.setenv("SOPA_TEST", value)
        file = write(f"{{value: std.native('env')('SOPA_TEST', {default})}}")
        answer = load_config(file)["value"]
        assert answer == expected
        assert type(answer) is type(expected)

    @pytest.mark.parametrize(
        ("default", "value"), [("150", "many"), ("150", "true"), ("true", "1")]
    )
    def test_a_variable_of_another_type_is_an_error(
        self, write, monkeypatch, default, value
    ) -> None:
        monkeypatch.setenv("SOPA_TEST", value)
        file = write(f"{{\n  value: std.native('env')('SOPA_TEST', {default}),\n}}")
        with pytest.raises(ConfigError, match=f"{file}:2.*SOPA_TEST.*found '{value}'"):
            load_config(file)


class TestJsonnet:
    def test_imports_are_relative_to_the_file(self, write, tmp_path, monkeypatch) -> None:
        write("{dim: import 'dim.json'}", "parts/encoder.libsonnet")
        write("3", "parts/dim.json")
        file = write("local base = import 'parts/encoder.libsonnet'; base {seed: 1 + 1}")
        monkeypatch.chdir("/")
        assert load_config(file) == {"dim": 3, "seed": 2}
        monkeypatch.chdir(tmp_path)
        assert load_config("config.jsonnet") == {"dim": 3, "seed": 2}

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("{\n  a: 1,,\n}", 2, "unexpected"),
            ("{\n  a: b,\n}", 2, "Unknown variable: b"),
            ("{\n\n  a: import 'absent.libsonnet',\n}", 3, "absent.libsonnet"),
            ("{\n  a: error 'out of data',\n}", 2, "out of data"),
            ("{\n  a: 1,\n  a: 2,\n}", 3, "duplicate field"),
            ("", 1, "unexpected end of file"),
            (b"{\n  a: '\xff',\n}", 2, "UTF-8"),
        ],
    )
    def test_an_error_names_file_and_line_on_one_line(self, write, text, line, words) -> None:
        file = write(text)
        with pytest.raises(ConfigError) as caught:
            load_config(file)
        message = str(caught.value)
        assert message.startswith(f"{file}:{line}:")
        assert words in message
        assert "\n" not in message

    def test_an_error_in_an_imported_file_names_that_file(self, write) -> None:
        imported = write("{\n  a: 1 +,\n}", "parts/broken.libsonnet")
        with pytest.raises(ConfigError) as caught:
            load_config(write("import 'parts/broken.libsonnet'"))
        assert f"{imported}:2:" in str(caught.value)

    @pytest.mark.parametrize("text", ["# Title\n\nSoft patterns.\n", "**Bold**", "“quoted”"])
    def test_of_another_kind_of_file_it_says_what_was_expected(self, write, text) -> None:
        with pytest.raises(ConfigError, match=r"README\.md:\d.*; expected a config, in Jsonnet$"):
            load_config(write(text, "README.md"))

    def test_a_byte_order_mark_is_passed_over(self, write) -> None:
        assert load_config(write(b"\xef\xbb\xbf{a: 1}")) == {"a": 1}

    @pytest.mark.parametrize("text", ["[1]", "'text'", "null", "3"])
    def test_a_config_is_an_object(self, write, text) -> None:
        with pytest.raises(ConfigError, match="expected an object"):
            load_config(write(text))


class TestJson:
    def test_it_is_read_without_jsonnet(self, write) -> None:
        file = write('{"a": [1, 2.5, null, true]}', "config.json")
        script = (
            "import sys; from sopa_plugin.registry import load_config\n"
            "sys.modules['_jsonnet'] = None\n"
            f"print(load_config({str(file)!r}))"
        )
        answer = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert answer.stdout.strip() == "{'a': [1, 2.5, None, True]}"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('{"a": 1,\n "b": }', ":2:7: not JSON"),
            ('{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' is given twice"),
            ('{"a": NaN}', "NaN is no JSON number"),
            ("[]", "expected an object"),
        ],
    )
    def test_errors_name_the_file(self, write, text, words) -> None:
        file = write(text, "config.json")
        with pytest.raises(ConfigError) as caught:
            load_config(file)
        assert str(caught.value).startswith(str(file))
        assert words in str(caught.value)


class TestMissingFile:
    def test_the_nearest_file_is_named(self, write) -> None:
        file = write("{}", "sopa_sst.jsonnet")
        with pytest.raises(ConfigError, match=r"no such config file.*sopa_sst\.jsonnet'"):
            load_config(file.with_name("sopa_ssst.jsonnet"))

    @pytest.mark.parametrize(
        ("given", "meant"),
        [
            ("sopa.jsonnet", "configs/sopa.jsonnet"),  # one level up
            ("config/sopa.jsonnet", "configs/sopa.jsonnet"),
            ("configs/sopa", "configs/sopa.jsonnet"),
            ("configs/sopa.json", "configs/sopa.jsonnet"),
            ("configs/sopaa.jsonnet", "configs/sopa.jsonnet"),
            ("somewhere/else.json", None),
        ],
    )
    def test_the_nearest_file_and_the_current_folder(
        self, write, tmp_path, monkeypatch, given, meant
    ) -> None:
        write("{}", "configs/sopa.jsonnet")
        write("{}", "configs/bilstm_amazon.jsonnet")
        write("text", "notes/sopa.txt")
        write("text", "sopa.py")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError) as caught:
            load_config(given)
        expected = f"{given}: no such config file; the current folder is {tmp_path}"
        advice = f"; did you mean '{meant}'?" if meant else ""
        assert str(caught.value) == expected + advice

    def test_of_an_absolute_path_the_current_folder_is_no_part(self, tmp_path) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / "sopa.json")
        assert str(caught.value) == f"{tmp_path / 'sopa.json'}: no such config file"

    @pytest.mark.parametrize("folder", ["", ".", "/"])
    def test_nor_is_one_that_lies_in_no_other(self, folder) -> None:
        with pytest.raises(ConfigError, match="is a folder, not a config file"):
            load_config(folder)

    def test_a_folder_is_no_config(self, tmp_path) -> None:
        with pytest.raises(ConfigError, match="is a folder"):
            load_config(tmp_path)

    def test_a_folder_that_is_not_there(self, tmp_path) -> None:
        with pytest.raises(ConfigError, match="no such config file"):
            load_config(tmp_path / "absent" / "config.json")


def test_without_jsonnet_the_error_says_what_to_install(write) -> None:
    script = (
        "import sys; from sopa_plugin.registry import load_config\n"
        "from sopa_plugin.errors import UserError\n"
        "sys.modules['_jsonnet'] = None\n"
        "try: load_config(sys.argv[1])\n"
        "except UserError as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(write("{}"))]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pip install jsonnet" in answer.stdout


def test_the_registry_imports_neither_torch_nor_jsonnet() -> None:
    script = (
        "import sys; before = set(sys.modules); import sopa_plugin.registry\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(names - sys.stdlib_module_names))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "['sopa_plugin']"


def test_overrides_are_applied_on_the_way(write) -> None:
    class Kind:
        def __init__(self, seed: int = 1) -> None: ...

    file = write("{seed: 1}")
    assert load_config(file, ["seed=2"], Kind) == {"seed": 2}
    assert load_config(file, ["other.key=2"]) == {"seed": 1, "other": {"key": 2}}
    with pytest.raises(ConfigError, match="-o seed: not an override"):
        load_config(file, ["seed"], Kind)
