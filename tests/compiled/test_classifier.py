"""The compiled model says what the model says."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import numpy as arrays
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import normalizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from sopa_plugin.compiled import load_compiled, save_compiled
from sopa_plugin.compiled.words import Pieces, Words
from sopa_plugin.data.tokenizers import WordTokenizer, make_tokenizer
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.errors import UserError
from sopa_plugin.models import Model, TextClassifier, load_model
from sopa_plugin.predict import main as predict
from sopa_plugin.wfsa import Semiring
from sopa_plugin.wfsa.semirings import MaxSum

WORDS = ["good", "bad", "film", "a", "very", "not", "the", ",", "."]
LABELS = ["negative", "neutral", "positive"]
PATTERNS = {"2": 2, "3": 2, "5": 3}


def build_sopa(**encoder: Any) -> TextClassifier:
    return build({"type": "sopa", "patterns": PATTERNS, **encoder})


def build(encoder: dict[str, Any] | None = None, **params: Any) -> TextClassifier:
    torch.manual_seed(0)
    config = {
        "embedder": {"type": "static", "embedding_dim": 6},
        "encoder": encoder or {"type": "sopa", "patterns": PATTERNS},
        "head": {"type": "mlp", "hidden_dim": 5},
        **params,
    }
    model: TextClassifier = Model.from_params(
        config, tokenizer=make_tokenizer(WORDS), labels=LABELS
    )
    for parameter in model.parameters():  # far from the start
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def texts() -> list[str]:
    random = np.random.default_rng(0)
    words = [*WORDS, "unheard-of", "[PAD]"]
    some = [" ".join(random.choice(words, size)) for size in random.integers(0, 12, 300)]
    return ["", " ", "good", "unheard-of", "a\xa0b", *some]


@pytest.mark.parametrize(
    "encoder",
    [
        {},
        {"semiring": "max_sum"},
        {"semiring": "max_product", "encoding": "exp"},
        {"semiring": "log"},
        {"semiring": "sum_product"},
        {"semiring": "boolean"},
        {"self_loops": "shared"},
        {"self_loops": "none", "epsilons": False},
        {"epsilon_scale": 0.5, "self_loop_scale": 0.5, "bias_scale": 0.1},
        {"boundary_loops": True, "final_epsilon": False},
        {"boundary_tokens": True},
        {"boundary_tokens": "marked"},
        {"dropout": 0.5},
        {"output": "score", "normalization": "none"},
        {"normalization": "batch"},
        {"type": "sopa_released"},
        {"type": "sopa_released", "semiring": "max_sum"},
    ],
    ids=lambda each: "-".join(f"{key}={value}" for key, value in each.items()) or "default",
)
def test_same_labels_and_probabilities(encoder: dict[str, Any], tmp_path: Path) -> None:
    model = build_sopa(**encoder)
    expected = model.log_probabilities(texts())
    save_compiled(model.to_compiled(), tmp_path)
    loaded = load_compiled(tmp_path)
    assert loaded is not None
    for compiled in (model.to_compiled(), loaded):
        found = compiled.log_probabilities(texts())
        # Sums over many paths carry more rounding than a best path does.
        sums = encoder.get("semiring") in ("log", "sum_product")
        assert np.exp(found) == pytest.approx(np.exp(expected), abs=1e-5 if sums else 1e-6)
        assert compiled.predict(texts()) == [LABELS[row.argmax()] for row in expected]
    assert np.exp(expected).std(axis=0).min() > 1e-3  # or else nothing was shown


def test_a_model_of_transformers_is_given_its_tokenizer(tmp_path: Path) -> None:
    model = build_sopa()
    model.save(tmp_path)
    plain = TextClassifier.from_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"to_compiled\(tokenizer\)"):
        plain.to_compiled()
    compiled = plain.to_compiled(AutoTokenizer.from_pretrained(tmp_path))
    assert compiled.predict(texts()) == model.to_compiled().predict(texts())


def test_training_mode_makes_no_difference_and_is_kept() -> None:
    model = build_sopa(dropout=0.9)
    expected = model.to_compiled().table
    model.train()
    assert (model.to_compiled().table == expected).all()
    assert model.training


def test_linear_head_and_lower_case() -> None:
    model = build(head={"type": "linear"})
    model.tokenizer = make_tokenizer(WORDS, lowercase=True)
    shouted = ["A GOOD Film", "The BAD, NOT good"]
    found = model.to_compiled().log_probabilities(shouted)
    assert found == pytest.approx(model.log_probabilities(shouted), abs=1e-6)
    assert found == pytest.approx(
        model.to_compiled().log_probabilities([text.lower() for text in shouted]), abs=1e-12
    )


def test_it_does_not_change_when_the_model_is_trained_on() -> None:
    model = build()
    compiled = model.to_compiled()
    before = compiled.log_probabilities(texts())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert (compiled.log_probabilities(texts()) == before).all()


@pytest.mark.parametrize(
    "encoder", [{"type": "cnn", "window_sizes": [2]}, {"type": "bilstm", "hidden_dim": 3}]
)
def test_other_encoders_say_why_not(encoder: dict[str, Any], tmp_path: Path) -> None:
    model = build(encoder)
    assert "encoder" in str(model.reason_not_compiled())
    with pytest.raises(UserError, match=r"cannot be compiled.*encoder"):
        model.to_compiled()
    model.save(tmp_path)
    assert load_compiled(tmp_path) is None


def tokenizers() -> dict[str, PreTrainedTokenizerFast]:
    """Tokenizers that do more than to split on blanks."""
    more, folding, special, running = (make_tokenizer(WORDS) for _ in range(4))
    more.add_tokens(["not very"])
    folding.backend_tokenizer.normalizer = normalizers.NFKC()
    special.split_special_tokens = False
    running = WordTokenizer(lowercase=True).build(["good bad film the , . a"], [], [])
    wrapped = make_tokenizer(WORDS)
    wrapped.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[UNK] $A [UNK]", special_tokens=[("[UNK]", 1)]
    )
    return {
        "added token": more,
        "normalizer": folding,
        "special tokens": special,
        "running text": running,
        "special tokens around": wrapped,
    }


@pytest.mark.parametrize("kind", list(tokenizers()))
def test_any_tokenizer_of_the_library(kind: str, tmp_path: Path) -> None:
    tokenizer = tokenizers()[kind]
    model: TextClassifier = Model.from_params(
        {
            "embedder": {"type": "static", "embedding_dim": 6},
            "encoder": {"type": "sopa", "patterns": PATTERNS},
        },
        tokenizer=tokenizer,
        labels=LABELS,
    )
    hard = [*texts(), "The film isn't good, it's BAD.", "ｆｉｌｍ", "not very [PAD] [UNK]good"]
    model.save(tmp_path)
    compiled = load_compiled(tmp_path)
    assert compiled is not None
    assert isinstance(compiled.words, Pieces)
    ids, offsets = compiled.words.encode(hard)
    expected = tokenizer(hard)["input_ids"]
    assert [ids[i:j].tolist() for i, j in pairwise(offsets.tolist())] == expected
    found = compiled.log_probabilities(hard)
    assert found == pytest.approx(model.log_probabilities(hard), abs=1e-6)


def test_weights_in_half_precision_say_why_not() -> None:
    assert "bfloat16" in str(build().bfloat16().reason_not_compiled())


def test_a_saved_model_has_its_compiled_form_and_a_changed_one_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = build()
    model.save(tmp_path)
    compiled = load_compiled(tmp_path)
    assert compiled is not None
    assert compiled.labels == LABELS
    assert isinstance(compiled.words, Words)  # fast code for words between blanks
    weights = load_file(tmp_path / "model.safetensors")
    weights["encoder.arcs.bias"] += 1
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="changed since training"):
        load_compiled(tmp_path)
    assert load_compiled(tmp_path, accept_changed=True) is None
    assert "another model" in caplog.text
    load_model(tmp_path, accept_changed=True).save(tmp_path)
    assert load_compiled(tmp_path) is not None


WITHOUT = """
import json, multiprocessing, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        third = "numpy numba llvmlite orjson tokenizers safetensors"
        there = {"sopa_plugin", "my_heads", *third.split()}
        if top not in there and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
"""
"""Leaves nothing to be imported but what the compiled classifier is to need."""
ASKED = """
from sopa_plugin.compiled import load_compiled
from sopa_plugin.wfsa import cpu

compiled, texts = load_compiled(sys.argv[0]), json.load(sys.stdin)
cpu.LEAST_STATES = 1  # threads, which a forked child has lost

def answers(_):
    return compiled.log_probabilities(texts).tolist()

here = answers(0)
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(json.dumps([here, *pool.map(answers, range(2))]))
"""


def without_torch(
    program: str, *arguments: str, input: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program, *arguments],
        input=input,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "3"} | variables,
    )


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_it_needs_nothing_else(head: str, tmp_path: Path) -> None:
    """One file, NumPy, numba and tokenizers; in a forked child too."""
    model = build({"type": "sopa", "patterns": PATTERNS, "normalization": "layer"}, head=head)
    if head == "mlp":
        model.tokenizer = tokenizers()["running text"]
    save_compiled(model.to_compiled(), tmp_path)
    (tmp_path / "digests.json").unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["compiled.safetensors"]
    done = without_torch(ASKED, str(tmp_path), input=json.dumps(texts()))
    assert done.returncode == 0, done.stderr
    here, *children = json.loads(done.stdout)
    assert np.array(here) == pytest.approx(model.log_probabilities(texts()), abs=1e-5)
    assert children == [here, here]


def test_commands_without_torch(tmp_path: Path) -> None:
    model = build()
    model.save(tmp_path)
    predicting = (
        "from sopa_plugin.__main__ import script; sys.argv.insert(0, 'sopa-plugin'); script()"
    )
    table = "text,id\ngood film,1\n,2\n"
    arguments = ["predict", str(tmp_path), "-i", "-", "--format", "csv"]
    done = without_torch(predicting, *arguments, input=table)
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header == "text,id,label," + ",".join(f"probability_{label}" for label in LABELS)
    assert [row.split(",")[2] for row in rows] == model.to_compiled().predict(["good film", ""])
    (tmp_path / "compiled.safetensors").unlink()
    done = without_torch(predicting, *arguments, input=table)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "needs torch: pip install torch" in done.stderr


def test_another_head_says_that_it_needs_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_heads.py").write_text(
        "from sopa_plugin.heads import ClassifierHead, LinearHead\n"
        "@ClassifierHead.register('cold')\n"
        "class ColdHead(LinearHead):\n"
        "    def forward(self, document):\n"
        "        return super().forward(document) / 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("my_heads")
    model = build(head={"type": "cold"})
    (tmp_path / "run").mkdir()
    model.save(tmp_path / "run")
    loaded = load_compiled(tmp_path / "run")
    assert loaded is not None
    found = loaded.log_probabilities(texts())
    assert found == pytest.approx(model.log_probabilities(texts()), abs=1e-6)
    done = without_torch(
        "from sopa_plugin.__main__ import script; sys.argv.insert(0, 'sopa-plugin'); script()",
        "predict",
        str(tmp_path / "run"),
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path[1:]]),
    )
    assert done.returncode == 1
    assert "the head 'cold' needs torch: pip install torch" in done.stderr


def test_a_semiring_of_ones_own_says_why_not() -> None:
    @Semiring.register("my_max", exist_ok=True)
    class MyMax(MaxSum):
        pass

    assert "semiring" in str(build_sopa(semiring="my_max").reason_not_compiled())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such folder"):
        load_compiled(tmp_path / "nowhere")


def test_one_text_is_no_list_of_texts() -> None:
    with pytest.raises(TypeError, match=r"expected a list of texts.*\['a good film'\]"):
        build().to_compiled().predict("a good film")


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_half_of_a_surrogate_pair_is_no_text(kind: str) -> None:
    model = build()
    if kind == "pieces":
        model.tokenizer = tokenizers()["normalizer"]
    with pytest.raises(UserError, match="text 2: the text has half of a surrogate pair"):
        model.to_compiled().predict(["good", "a \ud800 film"])


@pytest.mark.parametrize("damage", ["cut", "other", "empty"])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "compiled.safetensors"
    save_compiled(build().to_compiled(), tmp_path)
    if damage == "other":
        save_file({"x": torch.zeros(1)}, file)
    else:
        file.write_bytes(file.read_bytes()[: 1000 if damage == "cut" else 0])
    with pytest.raises(UserError, match=r"compiled\.safetensors: changed since training"):
        load_compiled(tmp_path)
    with pytest.raises(UserError, match=r"compiled\.safetensors.*damaged"):
        load_compiled(tmp_path, accept_changed=True)


def test_the_table_is_that_of_the_encoder() -> None:
    model = build_sopa(boundary_tokens=True)
    assert isinstance(model.encoder, SopaEncoder)
    table = torch.from_numpy(model.to_compiled().table)
    with torch.no_grad():
        ids = torch.arange(len(table) - 1)
        scores, _ = model.encoder.arc_scores(model.embedder(ids, torch.ones_like(ids)))
        zero, _ = model.encoder.arc_scores(torch.zeros(1, 6))
    assert torch.allclose(table[:-1], scores)
    assert torch.allclose(table[-1], zero[0])


def test_predict_uses_it_and_says_the_same_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lines = tmp_path / "model", tmp_path / "lines.txt"
    folder.mkdir()
    build().save(folder)
    lines.write_text("".join(text + "\n" for text in texts()), encoding="utf-8")

    def answers(name: str) -> list[dict[str, Any]]:
        output = tmp_path / name
        predict([str(folder), "-i", str(lines), "-O", str(output)])
        return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]

    with monkeypatch.context() as patched:
        patched.setattr("sopa_plugin.models.load_model", None)
        by_table = answers("compiled")
    for name in ("compiled.safetensors", "digests.json"):
        (folder / name).unlink()
    plain = answers("plain")
    assert [each["text"] for each in by_table] == texts()
    for ours, expected in zip(by_table, plain, strict=True):
        assert ours["label"] == expected["label"]
        assert ours["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-6)


Change = Callable[[dict[str, Any], dict[str, Any]], Any]


def cut(name: str) -> Change:
    return lambda _, each: each.update({name: each[name][:-1].copy()})


def of_type(name: str, kind: Any) -> Change:
    return lambda _, each: each.update({name: each[name].astype(kind)})


OUT_OF_PLACE: dict[str, Change] = {
    "boundary-token-behind": lambda record, _: record.update(boundary_places=[5000, 5001]),
    "boundary-token-before": lambda record, _: record.update(boundary_places=[-1, -1]),
    "boundary-token-a-word": lambda record, _: record.update(boundary_places=[0, 1]),
    "boundary-token-of-three": lambda record, _: record["boundary_places"].append(3),
    "boundary-width": lambda record, _: record.update(boundary_width=50),
    "boundary-width-negative": lambda record, _: record.update(boundary_width=-1),
    "boundary-width-true": lambda record, _: record.update(boundary_width=True),
    "length": lambda record, _: record.update(lengths=[*record["lengths"][:-1], 9]),
    "length-1": lambda record, _: record.update(lengths=[1, *record["lengths"][1:]]),
    "lengths-of-floats": lambda record, _: record.update(lengths=[*map(float, record["lengths"])]),
    "length-nan": lambda record, _: record.update(lengths=[float("nan"), *record["lengths"][1:]]),
    "a-pattern-more": lambda record, _: record["lengths"].append(record["lengths"][-1]),
    "options": lambda record, _: record.update(options=[True, True, True, True, True]),
    "options-four": lambda record, _: record["options"].pop(),
    "rule-of-no-pattern": lambda record, _: record["rules"].append(0),
    "semiring": lambda record, _: record.update(semiring="tropical"),
    "unknown": lambda record, _: record["words"].update(unknown=10**6),
    "unknown-negative": lambda record, _: record["words"].update(unknown=-1),
    "max-tokens": lambda record, _: record["words"].update(max_tokens=-1),
    "row": lambda record, _: record["words"]["unknown_words"].update(rows={"": 10**6}),
    "row-negative": lambda record, _: record["words"]["unknown_words"].update(rows={"": -(2**63)}),
    "row-infinite": lambda record, _: record["words"]["unknown_words"].update(rows={"": 1e400}),
    "buckets": lambda record, _: record["words"]["unknown_words"].update(ngram_buckets=10**6),
    "words": lambda _, each: each.update(words=np.frombuffer(b"a\nb\n" * 99, np.uint8)),
    "table-cut": lambda _, each: each.update(table=each["table"][:3].copy()),
    "table-of-doubles": of_type("table", np.float64),
    "table-of-integers": of_type("table", np.int32),
    **{f"{name}-cut": cut(name) for name in ("epsilon", "class_log_prior", "head.output.bias")},
    **{f"{name}-cut": cut(f"unknown.{name}") for name in ("vectors", "ngrams", "weight", "bias")},
    "weight-of-doubles": of_type("unknown.weight", np.float64),
}
LOADED = """
import faulthandler, sys
from pathlib import Path
from sopa_plugin.compiled import load_compiled
from sopa_plugin.errors import UserError

faulthandler.enable()
for folder in sorted(Path(sys.argv[1]).iterdir()):
    print(folder.name, end=" ", flush=True)
    try:
        load_compiled(folder).predict(["a good film", "", "zork 7 " * 500])
        print("predicts", flush=True)
    except UserError as error:
        print("damaged" if "or a damaged one" in str(error) else error, flush=True)
"""


def test_what_is_out_of_place_in_a_file_is_found_when_it_is_loaded(tmp_path: Path) -> None:
    """By one error, in a process that would show a crash."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} 1 2 3 4\n" for word in WORDS))
    static = {"type": "static", "vectors": str(vectors), "own_rows": True, "ngram_buckets": 30}
    sopa = {"type": "sopa", "patterns": PATTERNS, "boundary_tokens": True}
    save_compiled(build(sopa, embedder=static).to_compiled(), tmp_path)
    with safe_open(tmp_path / "compiled.safetensors", framework="numpy") as opened:
        record = opened.metadata()["sopa_plugin"]
        whole = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    for name, change in {"a-whole-one": lambda *_: None, **OUT_OF_PLACE}.items():
        changed, folder = (json.loads(record), dict(whole)), tmp_path / "all" / name
        change(*changed)
        folder.mkdir(parents=True)
        metadata = {"sopa_plugin": json.dumps(changed[0])}
        arrays.save_file(changed[1], folder / "compiled.safetensors", metadata)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, tmp_path / "all"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert found == {"a-whole-one": "predicts", **dict.fromkeys(OUT_OF_PLACE, "damaged")}


def test_ids_that_a_tokenizer_puts_around_a_text_are_in_the_table(tmp_path: Path) -> None:
    model = build()
    model.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[UNK] $A", special_tokens=[("[UNK]", 10**6)]
    )
    save_compiled(model.to_compiled(), tmp_path)
    with pytest.raises(UserError, match="or a damaged one"):
        load_compiled(tmp_path)
