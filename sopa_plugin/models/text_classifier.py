"""The text classifier of the paper: embedder, encoder and head, as a transformers model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from huggingface_hub import HfApi
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils import logging as transformers_logging

from sopa_plugin.compiled import CompiledClassifier, save_compiled
from sopa_plugin.data.batches import Batch, Documents, Integers, Text, evaluation_batches
from sopa_plugin.data.ngrams import MOST_NGRAMS, NewWords
from sopa_plugin.embedders.static import OwnRows
from sopa_plugin.embedders.token_embedder import build_embedder, embed
from sopa_plugin.encoders import (
    Packed,
    PackedSeq2VecEncoder,
    Seq2VecEncoder,
    encode_packed,
    offsets_of,
)
from sopa_plugin.errors import UserError, failing
from sopa_plugin.heads import ClassifierHead, LinearHead
from sopa_plugin.models import compiling
from sopa_plugin.models.model import Model
from sopa_plugin.models.neural_model import NeuralModel, TextClassifierConfig
from sopa_plugin.models.open_vocabulary import OpenVocabularyTokenizer
from sopa_plugin.models.saved import (
    CONFIG_FILE,
    UNFIT,
    check_weights,
    load_tokenizer,
    note_files,
    read_config,
)
from sopa_plugin.registry import check_imported, imported_only
from sopa_plugin.rules import Rules
from sopa_plugin.rules.start import RuleEmbedder, patterns_of, settle_votes, started, tests_of

MOST_LOOKED_AT = 2000
"""Texts that a model which begins as rules looks at, at most."""

_CARD = """\
---
pipeline_tag: text-classification
library_name: transformers
tags: [sopa_plugin, soft-patterns]
---
A text classifier that needs the Python package sopa_plugin (`pip install .` in a clone of its
repository). In place of `MODEL` put the name of this repository.

```python
from transformers import pipeline

import sopa_plugin.models  # makes the model known to transformers

classify = pipeline("text-classification", model="MODEL")
```
"""
_NEW = 1 << 40  # ids of no vocabulary
_MEANS = "document_vector_means"  # key of the record in config.json


@Model.register("text_classifier", constructor="from_parts", exist_ok=True)
class TextClassifier(PreTrainedModel, NeuralModel):
    """Token vectors, a document vector, class scores (paper, section 5).

    Registered as `text_classifier`; arguments of a config are those of `NeuralModel`.
    `save_pretrained`, `from_pretrained`, the Auto classes, pipelines and `transformers.Trainer`
    work with it after `import sopa_plugin.models`.

    Raises:
        UserError: the config is an empty one.
    """

    config_class = TextClassifierConfig
    base_model_prefix = ""
    accepts_loss_kwargs = False  # else transformers' Trainer hands forward more than it takes
    class_log_prior: Tensor
    tokenizer: Any = None  # `from_pretrained` gives a model none
    _supports_sdpa = True  # said of the parts: an embedder's own model decides

    def __init__(self, config: TextClassifierConfig) -> None:
        super().__init__(config)
        check_imported((config.sopa_plugin or {}).get("plugins", []), "config.json")
        if not (config.embedder and config.encoder and config.head):
            raise UserError(
                "a TextClassifierConfig without embedder, encoder or head is no model's: take that "
                "of a saved model (from_pretrained), or build one from parts (Model.from_params)"
            )
        with imported_only():  # what a user's own config names, its check has imported
            self.embedder = build_embedder(config.embedder)
            handed: dict[str, Any] = {}
            if config.rules is not None:
                rules = Rules.from_json(config.rules)
                words = config.embedder["num_embeddings"]
                self.embedder = RuleEmbedder(self.embedder, words, len(tests_of(rules)))
                handed["rules"] = [pattern for pattern, _ in patterns_of(rules)]
            version = str((config.sopa_plugin or {}).get("version", ""))
            kind = Seq2VecEncoder.by_name(config.encoder["type"])
            config.encoder = kind.as_saved(config.encoder, version)
            self.encoder: Seq2VecEncoder = Seq2VecEncoder.from_params(
                config.encoder, input_dim=self.embedder.get_output_dim(), **handed
            )
            self.head: ClassifierHead = ClassifierHead.from_params(
                config.head,
                input_dim=self.encoder.get_output_dim(),
                num_labels=config.num_labels,
            )
            if config.rules is not None and isinstance(self.head, LinearHead):
                of_rules: Any = self.encoder
                self.head.spared = [at for at, rule in enumerate(of_rules.rules) if rule]
        self.register_buffer("class_log_prior", torch.zeros(len(self.labels)))
        self._frozen = [name for name, each in self.named_parameters() if not each.requires_grad]
        self.post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; frozen weights stay frozen."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for name in model._frozen:
            model.get_parameter(name).requires_grad_(False)
        return loaded

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        token_ids: Tensor | None = None,
        rows: Tensor | None = None,
        index: Tensor | None = None,
        offsets: Tensor | None = None,
        ngrams: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        """Logits `[batch, labels]`, and the mean cross-entropy where labels are given.

        A batch comes in one of three ways:
            padded: `input_ids`, `attention_mask`, both `[batch, tokens]`; without a mask every id
                but the padding counts;
            packed: distinct `token_ids [rows]`, `index [tokens]` and `offsets [batch + 1]` (see
                `sopa_plugin.encoders.Packed`), for an embedder that is not contextual;
            embedded: the embedder's output `rows [rows, dim]` with `index` and `offsets`.
        `ngrams` are those of unknown words, where the tokenizer tells any apart: as batches of
        `Documents` have them, `[words, 1 + MOST_NGRAMS]`, or, beside `input_ids`, as the tokenizer
        gives them for each document by itself, `[batch, words, 1 + MOST_NGRAMS]`.
        `token_type_ids` are taken, and ignored, since tokenizers give them: a document is one text.
        With `output_hidden_states`, `hidden_states` holds the document vectors `[batch, K]`.
        `return_dict` false (by default the config's) gives a tuple of what there is.
        """
        if input_ids is not None:
            input_ids, mask = self._clean(input_ids, attention_mask)
            document, empty = self._encode_padded(input_ids, mask, ngrams), ~mask.any(dim=1)
        else:
            rows = rows if token_ids is None else self.word_vectors(token_ids, ngrams)
            if rows is None or index is None or offsets is None:
                raise ValueError("expected input_ids, or token_ids or rows with index and offsets")
            document = encode_packed(self.encoder, Packed(rows, index, offsets))
            empty = offsets.diff() == 0
        logits = self.head(document)
        # no part can say anything about a document without a token
        logits = torch.where(empty[:, None], self.class_log_prior.to(logits), logits)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        hidden_states: Any = (document,) if output_hidden_states else None
        output = SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=hidden_states)
        as_dict = self.config.return_dict if return_dict is None else return_dict
        return output if as_dict else output.to_tuple()

    @property
    def labels(self) -> list[str]:  # type: ignore[override]
        """Names of the classes."""
        names: dict[Any, str] = self.config.id2label or {}
        return [names[number] for number in sorted(names)]

    @property
    def takes_packed(self) -> bool:
        """Whether `token_ids` are this model's fastest input."""
        return isinstance(self.encoder, PackedSeq2VecEncoder) and not self.embedder.contextual

    def encode_texts(
        self,
        texts: Sequence[Text] | Documents,
        labels: Sequence[int] | None = None,
        new_words: NewWords | None = None,
    ) -> Documents:
        """`texts` tokenised (see `Documents.encode`), if they are not.

        Raises `UserError` for a model from `from_pretrained`, which does not have its tokenizer.
        """
        if isinstance(texts, Documents):
            return texts
        if self.tokenizer is None:
            raise UserError(
                "this model has no tokenizer: give it one (model.tokenizer = ...), or load it with "
                "sopa_plugin.models.load_model(folder)"
            )
        return Documents.encode(texts, self.tokenizer, labels, new_words)

    def word_vectors(self, token_ids: Tensor, ngrams: Tensor | None = None) -> Tensor:
        """Vectors `[..., dim]` of `token_ids [...]`, where they do not depend on context."""
        return embed(self.embedder, token_ids, torch.ones_like(token_ids), ngrams)

    def look_at(self, texts: Sequence[str]) -> None:
        """Where it began as rules, sets how little they count where they do not fire."""
        head: Any = self.head
        encoder: Any = self.encoder
        if self.config.rules is not None and len(texts):
            documents = self.encode_texts(texts[:MOST_LOOKED_AT])
            settle_votes(head.output, encoder, self.document_vectors(documents).cpu())

    def document_vectors(self, documents: Documents) -> Tensor:
        """Document vectors `[documents, K]`, without dropout."""
        found = torch.zeros(len(documents), self.encoder.get_output_dim(), device=self.device)
        for numbers, output in self._outputs(documents, evaluation_batches(documents.lengths)):
            found[torch.from_numpy(numbers)] = output.hidden_states[0].to(found)
        return found

    def started(self) -> list[tuple[Tensor, Tensor]]:
        """The weights that rules began, each with which of its numbers they did (bool, alike)."""
        if self.config.rules is None:
            return []
        encoder: Any = self.encoder
        head: Any = self.head
        return started(head.output, encoder)

    def set_class_prior(self, labels: Integers) -> None:
        """Gives a document without a token the class frequencies of `labels [documents]`.

        Those of texts without a label are -1, and do not count.
        """
        known = torch.from_numpy(labels[labels >= 0])
        counts = torch.bincount(known, minlength=len(self.labels)).double()
        # one more of each, so that no class is impossible
        self.class_log_prior.copy_((counts + 1).div(counts.sum() + len(counts)).log())

    @property
    def document_vector_means(self) -> Tensor | None:
        """Means of the document vector over the training texts, `[dim]`, if they are known."""
        means = (self.config.sopa_plugin or {}).get(_MEANS)
        return None if means is None else torch.tensor(means, dtype=torch.float64, device="cpu")

    def take_means_of(self, documents: Documents) -> None:
        """Keeps the means of the document vector over `documents`; they are saved with the model.

        Reading a model compares with them (see `sopa_plugin.interpret`).
        """
        batches = evaluation_batches(documents.lengths)
        outputs = (output.hidden_states[0] for _, output in self._outputs(documents, batches))
        sums = [vectors.double().sum(dim=0) for vectors in outputs]
        means = torch.stack(sums).sum(dim=0).div(len(documents)).tolist()
        self.config.sopa_plugin = {**(self.config.sopa_plugin or {}), _MEANS: means}

    def scale_logits(self, factor: float) -> None:
        """Scales the head, and with it what pipelines and the compiled classifier answer."""
        self.head.scale(factor)

    def make_batch(self, documents: Documents, numbers: Integers) -> Batch:
        """The arguments of `forward` for some documents, in the form that is fastest."""
        if documents.vectors is not None:
            return documents.embedded(numbers)
        if self.takes_packed:
            return documents.packed(numbers)
        return documents.padded(numbers, self.config.pad_token_id or 0)

    def logits(self, documents: Documents, batches: Iterator[Integers]) -> Tensor:
        """Logits `[documents, labels]`, without dropout; zeros for documents in no batch."""
        logits = torch.zeros(len(documents), len(self.labels), device=self.device)
        for numbers, output in self._outputs(documents, batches):
            logits[torch.from_numpy(numbers)] = output.logits.to(logits.dtype)
        return logits

    def log_probabilities(self, texts: Sequence[Text] | Documents) -> NDArray[np.floating]:
        """Log-probabilities of the classes, `[texts, labels]`."""
        documents = self.encode_texts(texts)
        logits = self.logits(documents, evaluation_batches(documents.lengths))
        return logits.cpu().double().log_softmax(dim=1).numpy()  # type: ignore[no-any-return]

    def to_device(self, device: str) -> None:
        """Moves the model to a device."""
        nn.Module.to(self, device)

    def parameter_counts(self) -> dict[str, int]:
        """`total`, `trainable`, each part's, and what a part says of itself (`encoder_formula`)."""
        counts = {
            "total": sum(each.numel() for each in self.parameters()),
            "trainable": sum(each.numel() for each in self.parameters() if each.requires_grad),
        }
        for name, part in self.named_children():
            counts[name] = sum(each.numel() for each in part.parameters())
            count_own: Any = getattr(part, "parameter_counts", dict)
            counts |= {f"{name}_{key}": number for key, number in count_own().items()}
        return counts

    def reason_not_compiled(self) -> str | None:
        """Why this model cannot be compiled; None where it can."""
        return compiling.reason_against(self)

    def to_compiled(self, tokenizer: PreTrainedTokenizerBase | None = None) -> CompiledClassifier:
        """This model compiled to a table of its words' arc scores, which predicts much faster.

        It gives the same labels, and the same probabilities but for rounding. A model from
        `from_pretrained` does not have its tokenizer and is given it here.

        Raises `UserError` where that cannot be (`reason_not_compiled`).
        """
        if tokenizer is not None:
            self.tokenizer = tokenizer
        with self._evaluating():
            return compiling.compiled(self)

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """As in transformers, with the tokenizer where the model has it."""
        super().save_pretrained(save_directory, *args, **kwargs)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(save_directory)

    def push_to_hub(  # type: ignore[override]  # no shards, and tags are the card's
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload model",
        private: bool | None = None,
        token: bool | str | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Uploads all that `save` writes, with a card that says what to install; the commit's URL.

        The card and the figures are those of the run that the model was loaded from, if any.
        """
        hub, run = HfApi(token=token), Path(self.name_or_path or "")
        repo_id = hub.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as written:
            folder = Path(written)
            (folder / "README.md").write_text(_CARD, encoding="utf-8")
            for file in (run / "README.md", run / "metrics.json"):
                if self.name_or_path and file.is_file() and (run / CONFIG_FILE).is_file():
                    shutil.copy(file, folder)
            self.save(folder)
            options: Any = {"revision": revision, "create_pr": create_pr}
            return str(
                hub.upload_folder(
                    repo_id=repo_id, folder_path=folder, commit_message=commit_message, **options
                )
            )

    def save(self, folder: Path) -> None:
        """Writes the model and its tokenizer, as `save_pretrained` does, and it compiled if it can.

        The folder is there already.
        """
        with _no_progress_bar():
            super().save_pretrained(folder)
        tokenizer_files = self.tokenizer.save_pretrained(folder)
        if self.reason_not_compiled() is None:
            save_compiled(self.to_compiled(), folder)
        note_files(folder, tokenizer_files)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The model with its tokenizer.

        Raises:
            UserError: a file is absent or damaged, or the weights are not those of the config.
        """
        config = read_config(folder)
        for name in ("embedder", "encoder", "head", "num_labels"):
            check_weights(config.get(name), folder, name)
        with failing(folder, "the model cannot be read"), _no_progress_bar():
            model, found = cls.from_pretrained(folder, output_loading_info=True)
        missing, unknown = sorted(found["missing_keys"]), sorted(found["unexpected_keys"])
        if missing or unknown:
            raise UserError(
                f"{folder}: the weights are not those of the config (missing: "
                f"{', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}); "
                "another version of the code may have saved them: train the model again"
            )
        model.tokenizer = load_tokenizer(folder)
        unfit = "a word of the tokenizer has no vector: they do not fit together"
        with failing(folder, unfit):
            last = max(model.tokenizer.get_vocab().values(), default=0)
            model.word_vectors(torch.tensor([[last]]))  # contextual ones take documents
            if isinstance(model.tokenizer, OpenVocabularyTokenizer):
                entries = torch.tensor(model.tokenizer.by_answers.entries())
                entries = functional.pad(entries, (0, 1 + MOST_NGRAMS - entries.shape[1]))
                places = torch.arange(len(entries))[:, None]
                model.word_vectors(entries[:, 0], torch.cat([places, entries[:, 1:]], dim=1))
            for part in model.modules():
                if isinstance(part, OwnRows):
                    part.check_places()
        with failing(folder, UNFIT):
            model.log_probabilities(["a 1 \ufffc", ""])  # of a config much is looked at only now
            if (means := model.document_vector_means) is not None:
                means.view(model.encoder.get_output_dim())
        return model  # type: ignore[no-any-return]

    def get_input_embeddings(self) -> nn.Module:
        """Refused, and with it all that would change the vocabulary of a model."""
        raise NotImplementedError(
            "a TextClassifier's word vectors are its part `embedder`'s, for the words of its "
            "tokenizer; train a model with another tokenizer to change them"
        )

    def init_weights(self) -> None:
        """Nothing is drawn here: parts have drawn their own weights."""
        self.tie_weights(recompute_mapping=False)

    def _init_weights(self, module: nn.Module) -> None:
        """Draws what a saved model lacks, or has of another size (`ignore_mismatched_sizes`)."""
        if module is self:
            init.zeros_(self.class_log_prior)
            return
        own = (*module.parameters(), *module.buffers())
        loaded = [each for each in own if getattr(each, "_is_hf_initialized", False)]
        reset: Any = getattr(module, "reset_parameters", None)
        if reset is None or len(loaded) == len(own):
            return
        values = [each.detach().clone() for each in loaded]
        reset()
        with torch.no_grad():
            for each, value in zip(loaded, values, strict=True):
                each.copy_(value)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Without dropout, for a while."""
        training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(training)

    @torch.inference_mode()
    def _outputs(
        self, documents: Documents, batches: Iterator[Integers]
    ) -> Iterator[tuple[Integers, Any]]:
        """The numbers of the documents of each batch, and what `forward` gives for them."""
        with self._evaluating():
            for numbers in batches:
                batch = self.make_batch(documents, numbers)
                batch.pop("labels", None)
                batch = {name: each.to(self.device) for name, each in batch.items()}
                yield numbers, self(**batch, return_dict=True, output_hidden_states=True)

    def _clean(self, input_ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Ids and mask `[batch, at least one]`; a tokenizer gives an empty text floating ones."""
        padding = self.config.pad_token_id
        if mask is None:
            mask = torch.ones_like(input_ids) if padding is None else input_ids != padding
        missing = int(input_ids.shape[1] == 0)
        input_ids = functional.pad(input_ids.long(), (0, missing), value=padding or 0)
        return input_ids, functional.pad(mask.bool(), (0, missing), value=False)

    def _encode_padded(self, input_ids: Tensor, mask: Tensor, ngrams: Tensor | None) -> Tensor:
        if ngrams is not None and ngrams.dim() == 3:
            ngrams = _of_batch(ngrams.long(), mask)
        if self.takes_packed:
            # as in training, so that a document's scores do not depend on the form of its batch
            ids, numbers = input_ids[mask], input_ids[mask]
            if ngrams is not None:  # each of the words is a row of its own
                numbers[ngrams[:, 0]] = _NEW + torch.arange(len(ngrams), device=numbers.device)
            distinct, index = numbers.unique(return_inverse=True)
            if ngrams is not None:
                new = (distinct >= _NEW).nonzero()
                distinct[new[:, 0]] = ids[ngrams[:, 0]]
                ngrams = torch.cat([new, ngrams[:, 1:]], dim=1)
            rows = self.word_vectors(distinct, ngrams)
            return encode_packed(self.encoder, Packed(rows, index, offsets_of(mask)))
        if ngrams is not None:
            places = mask.flatten().nonzero()[ngrams[:, 0]]
            ngrams = torch.cat([places, ngrams[:, 1:]], dim=1)
        document: Tensor = self.encoder(embed(self.embedder, input_ids, mask, ngrams), mask)
        return document


def _of_batch(ngrams: Tensor, mask: Tensor) -> Tensor:
    """The n-grams of words of a batch, `[words, 1 + MOST_NGRAMS]`, from those of each document.

    `ngrams [batch, words, 1 + MOST_NGRAMS]` may have rows of zeros, and words that were cut off.
    """
    offsets = offsets_of(mask)
    found = (ngrams[..., 1] > 0) & (ngrams[..., 0] < offsets.diff()[:, None])
    documents = found.nonzero()[:, 0]
    places = ngrams[found][:, :1] + offsets[documents, None]
    return torch.cat([places, ngrams[found][:, 1:]], dim=1)


AutoModelForSequenceClassification.register(TextClassifierConfig, TextClassifier, exist_ok=True)


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keeps transformers from drawing a bar over weights that take no time to read or write."""
    wanted = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if wanted:
            transformers_logging.enable_progress_bar()
