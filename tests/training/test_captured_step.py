"""Steps that a GPU would replay as one graph: the same function, run on a CPU beside plain steps.

That a device need not wait for the host in such a step is tested on tensors without numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sopa_plugin.benchmarks.workload import Workload, make_workload
from sopa_plugin.data.batches import Documents
from sopa_plugin.encoders import SopaEncoder
from sopa_plugin.models import TextClassifier
from sopa_plugin.training import accelerate_trainer, captured_step, run_experiment
from sopa_plugin.training.captured_step import (
    NO_LABEL,
    CapturedStep,
    DeviceDocuments,
    padded_size,
    reason_against,
)
from sopa_plugin.wfsa import operator

Config = Callable[..., dict[str, Any]]
CPU = torch.device("cpu")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
STILL = {"model__encoder__dropout": 0.0, "model__head__dropout": 0.0}
PATTERNS = {"3": 4, "2": 4}


def sopa(**options: Any) -> dict[str, Any]:
    return {"model__encoder": {"type": "sopa", "patterns": PATTERNS, **options}}


@pytest.fixture(scope="module")
def workload() -> Workload:
    return make_workload(30)


def test_sizes_are_few_and_at_most_half_too_large() -> None:
    sizes = [padded_size(tokens) for tokens in range(70_000)]
    assert sizes[0] == 64
    assert all(tokens <= size <= max(1.5 * tokens, 64) for tokens, size in enumerate(sizes))
    assert len({*sizes}) == 22


def test_batches_gathered_on_the_device_are_those_of_the_host(workload: Workload) -> None:
    texts = ["b c b", "", "a a c d", "e"]
    documents = Documents.encode(texts, workload.classifier().tokenizer, [0, 1, 1, 0])
    documents = Documents(np.array([7, 3, 7, 5, 5, 3, 9, 4]), documents.offsets, documents.labels)
    given = torch.tensor([2, 1, 0, 4, 4])  # the last two are fillers
    there = DeviceDocuments(documents, CPU)
    batch = there.packed(given, 12)
    words = batch["token_ids"][batch["index"]]
    assert words[:7].tolist() == [5, 5, 3, 9, 7, 3, 7]
    assert len(words) == 12
    assert batch["index"][:7].tolist() == [
        0,
        0,
        2,
        3,
        4,
        2,
        4,
    ]  # where a word is for the first time
    assert batch["offsets"].tolist() == [0, 4, 4, 7, 7, 7]
    assert batch["labels"].tolist() == [1, 1, 0, NO_LABEL, NO_LABEL]
    padded, expected = there.padded(given, 4), documents.padded(np.array([2, 1, 0]), 0)
    for name, each in expected.items():
        assert torch.equal(padded[name][:3], each)
        assert (padded[name][3:] == (NO_LABEL if name == "labels" else 0)).all()


def learner(model: TextClassifier) -> Callable[[Tensor, Tensor], None]:
    def learn(logits: Tensor, labels: Tensor) -> None:
        functional.cross_entropy(logits, labels).backward()

    return learn


def make_step(
    model: TextClassifier, documents: Documents, learn: Any = None, slots: int = 8
) -> CapturedStep:
    trained = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01, fused=True)
    return CapturedStep(model, optimizer, documents, slots, learn or learner(model))


@pytest.mark.parametrize(
    "options",
    [{}, {"semiring": "sum_product"}, {"semiring": "log"}, {"boundary_tokens": True}],
    ids=str,
)
@devices
def test_fillers_change_no_logit_and_no_gradient(
    workload: Workload, options: dict[str, Any], device: str
) -> None:
    model, documents = workload.classifier(**options).train().to(device), workload.documents
    found: dict[str, Tensor] = {}

    def learn(logits: Tensor, labels: Tensor) -> None:
        functional.cross_entropy(logits, labels).backward()
        for name, each in model.named_parameters():
            if each.grad is not None:
                found[name] = each.grad.clone()

    step = make_step(model, documents, learn)
    numbers = np.array([4, 0, 17, 9, 11])
    step.numbers[:5] = torch.from_numpy(numbers)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    logits = step._step(256)[:5]
    model.load_state_dict(before)
    batch = model.make_batch(documents, numbers)
    output = model(**{name: each.to(device) for name, each in batch.items()})
    torch.testing.assert_close(logits, output.logits)
    output.loss.backward()
    assert {"encoder.arcs.weight", "encoder.arcs.epsilon", "head.hidden.bias"} <= found.keys()
    for name, each in found.items():
        torch.testing.assert_close(each, model.get_parameter(name).grad)


@devices
def test_the_warm_up_leaves_no_trace(workload: Workload, device: str) -> None:
    model = workload.classifier(dropout=0.5).train().to(device)
    step = make_step(model, workload.documents)
    numbers = np.arange(8)
    for begun in (False, True):  # without a state of Adam, and with one
        if begun:
            step.take(numbers)
        kept = [*model.state_dict().values(), *step._state()]
        before = [each.clone() for each in kept]
        random = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
        step._recorded(512)
        assert all(torch.equal(*pair) for pair in zip(before, kept, strict=True))
        now = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
        assert all(torch.equal(*pair) for pair in zip(random, now, strict=True))
        assert len(step._state()) == 3 * len(step.trained)
        assert begun or not any(each.any() for each in step._state())
        assert not any(each.grad is not None for each in step.trained)


@devices
def test_a_replayed_step_is_the_step_itself(workload: Workload, device: str) -> None:
    """Of the same numbers and random numbers; and on a GPU the host waits for nothing."""
    model = workload.classifier(dropout=0.5).train().to(device)
    step, numbers, found = make_step(model, workload.documents), np.arange(8), []
    logits = torch.zeros(30, 2, device=device)
    for _ in ("recorded", "launched"):
        with step._undone():
            step.take(numbers)
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("error")
            assert step.take(numbers, logits)
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")
            found.append([each.clone() for each in (logits, *step._state())])
        step.steps = {size: partial(step._step, size) for size in step.steps}
    for replayed, launched in zip(*found, strict=True):
        torch.testing.assert_close(replayed, launched, rtol=1e-4, atol=1e-6)


class Recording(TorchDispatchMode):
    """What a CUDA graph is: operations and where their operands are, to be done again."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, tree_leaves(result)))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, places in self.calls:
            for place, each in zip(places, tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(place, Tensor) and place.data_ptr() != each.data_ptr():
                    place.copy_(each)


class ReplayedStep(CapturedStep):
    """Replayed on the CPU: whatever the host decided while it recorded, it has decided for good."""

    def _recorded(self, size: int) -> Callable[[], Tensor]:
        with self._undone():
            self._step(size)
            with Recording() as recording:
                logits = self._step(size)

        def replay() -> Tensor:
            recording.replay()
            return logits

        return replay


@pytest.mark.parametrize("options", [{"dropout": 0.2}, {"semiring": "log"}], ids=str)
def test_a_recorded_step_takes_any_batch_and_learning_rate(
    workload: Workload, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    # so that the library's operators go through torch's dispatcher, where they are recorded
    monkeypatch.setattr(operator, "Tensor", None)
    random = np.random.default_rng(0)
    batches = [random.permutation(30)[: random.integers(1, 9)] for _ in range(12)]
    found = []
    for kind in (CapturedStep, ReplayedStep):
        torch.manual_seed(1)
        model = workload.classifier(**options).train()
        trained = [each for each in model.parameters() if each.requires_grad]

        def learn(logits: Tensor, labels: Tensor, trained: Any = trained) -> None:
            functional.cross_entropy(logits, labels).backward()
            nn.utils.clip_grad_norm_(trained, 0.1)

        step = kind(model, torch.optim.AdamW(trained), workload.documents, 8, learn)
        results = []
        for number, batch in enumerate(batches):
            step.optimizer.param_groups[0]["lr"] = 0.01 / (1 + number)
            logits = torch.zeros(30, 2)
            assert step.take(batch, logits)
            assert (logits != 0).any(dim=1).sum() == len(batch)
            results.append(logits)
        assert 1 < len(step.steps) < len(batches)
        found.append([*results, *trained, *step._state()])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_what_cannot_be_recorded_is_said_once_and_leaves_no_trace(
    workload: Workload, caplog: pytest.LogCaptureFixture
) -> None:
    def learn(logits: Tensor, labels: Tensor) -> None:
        functional.cross_entropy(logits, labels).backward()
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    step = make_step(workload.classifier(dropout=0.1).train(), workload.documents, learn)
    before, random = [each.detach().clone() for each in step.trained], torch.get_rng_state()
    assert not step.take(np.arange(3))
    assert not step.take(np.arange(2))
    assert all(torch.equal(*pair) for pair in zip(before, step.trained, strict=True))
    assert torch.equal(random, torch.get_rng_state())
    assert all(each.grad is None for each in step.trained)
    (said,) = caplog.messages
    assert "capturing): training goes on by plain steps" in said


def run(
    config: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> tuple[list[dict[str, float]], dict[str, Tensor], int]:
    """An experiment with steps as they would be captured: epochs, weights, number of such steps."""
    taken = []

    class Counted(CapturedStep):
        def take(self, *args: Any) -> bool:
            taken.append(super().take(*args))
            return taken[-1]

    def reason(state: Any, device: torch.device, own: dict[str, bool]) -> str | None:
        return None if device.type == "cpu" else reason_against(state, device, own)

    with monkeypatch.context() as patch:
        patch.setattr(accelerate_trainer, "reason_against", reason)
        patch.setattr(accelerate_trainer, "CapturedStep", Counted)
        run_experiment(config, folder, **options)
    return *results(folder), sum(taken)


def results(folder: Path) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    lines = (folder / "epochs.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer__grad_norm": 0.2, "trainer__grad_clipping": 0.01},
        {
            **sopa(semiring="sum_product"),
            "trainer__class_weights": "balanced",
            "trainer__optimizer": {"type": "adamw", "lr": 0.01, "weight_decay": 0.1},
            "trainer__learning_rate_scheduler": {"type": "linear_with_warmup"},
        },
        {
            **sopa(semiring="log", normalization="layer"),
            "trainer__loss_reduction": "sum",
            "trainer__class_weights": {"negative": 3.0},
            "trainer__learning_rate_scheduler": {"type": "reduce_on_plateau", "patience": 0},
        },
        {**sopa(type="sopa_released"), "model__head": {"type": "linear"}},
        {"trainer__batch_size": 100},  # more than there are documents
    ],
    ids=["clipped", "sum_product", "log", "released", "one batch"],
)
def test_training_gives_the_same_numbers_both_ways(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    settings = config(**{"model__head__dropout": 0.0, **sopa(), **changes})
    epochs, weights, taken = run(settings, tmp_path / "captured", monkeypatch)
    settings["trainer"]["cuda_graphs"] = False
    run_experiment(settings, tmp_path / "plain")
    expected, wanted = results(tmp_path / "plain")
    assert taken >= len(epochs) or torch.cuda.is_available()  # which has no kernel for sums
    assert len(epochs) == len(expected)
    for found, right in zip(epochs, expected, strict=True):
        assert found == pytest.approx(right, rel=1e-5)
    for name, each in wanted.items():
        torch.testing.assert_close(weights[name], each, rtol=1e-4, atol=1e-5)


def test_batches_that_are_too_large_are_taken_plainly(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captured_step, "MOST_TOKENS", 192)
    epochs, _, taken = run(config(**STILL), tmp_path / "mixed", monkeypatch)
    assert 0 < taken < 4 * len(epochs)
    run_experiment(config(**STILL, trainer__cuda_graphs=False), tmp_path / "plain")
    for found, right in zip(epochs, results(tmp_path / "plain")[0], strict=True):
        assert found == pytest.approx(right, rel=1e-5)


def test_a_recovered_run_goes_on_as_if_it_had_never_stopped(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, whose random numbers a warm-up must not use up."""
    whole = run(config(), tmp_path / "whole", monkeypatch)
    run(config(trainer__num_epochs=2), tmp_path / "run", monkeypatch)
    again = run(config(), tmp_path / "run", monkeypatch, recover=True)
    assert again[0] == whole[0]
    assert all(torch.equal(again[1][name], each) for name, each in whole[1].items())
    assert 0 < again[2] < whole[2]


@pytest.mark.parametrize("first", ["plain", "captured"])
def test_either_way_goes_on_from_the_other(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    plain = config(**STILL, trainer__cuda_graphs=False)
    run_experiment(plain, tmp_path / "plain")
    if first == "plain":
        run_experiment(
            {**plain, "trainer": {**plain["trainer"], "num_epochs": 2}}, tmp_path / "run"
        )
        run(config(**STILL), tmp_path / "run", monkeypatch, recover=True)
    else:
        run(config(**STILL, trainer__num_epochs=2), tmp_path / "run", monkeypatch)
        run_experiment(plain, tmp_path / "run", recover=True)
    both = (results(tmp_path / each)[0] for each in ("run", "plain"))
    for found, right in zip(*both, strict=True):
        assert found == pytest.approx(right, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"trainer__optimizer": {"type": "adamw", "fused": True}}, None),
        ({"trainer__learning_rate_scheduler": {"type": "reduce_on_plateau"}}, None),
        (sopa(type="sopa_released", semiring="max_sum"), None),
        (sopa(semiring="log"), None),
        ({"trainer__mixed_precision": "bf16"}, "mixed_precision is bf16"),
        ({"trainer__num_gradient_accumulation_steps": 2}, "gradients are accumulated"),
        ({"trainer__cuda_graphs": False}, "as configured"),
        ({"trainer__state_lasso": 0.01}, "state_lasso sums up states by lists"),
        ({"model__encoder": {"type": "dan"}}, "not capturable as it is: encoder (DanEncoder)"),
        (sopa(self_loops="shared"), "not capturable as it is: encoder (SopaEncoder)"),
        ({"model__embedder__own_rows": True}, "not capturable as it is: embedder (StaticEmbedder)"),
        (sopa(normalization="batch"), "batch normalization"),
        ({"trainer__optimizer": {"type": "sgd", "lr": 0.1}}, "the optimizer is SGD"),
        ({"trainer__optimizer": {"type": "adam", "fused": False}}, "not to be fused"),
        (
            {"trainer__learning_rate_scheduler": {"type": "one_cycle", "max_lr": 0.1}},
            "OneCycleLR may change more than learning rates",
        ),
    ],
    ids=str,
)
def test_the_reason_against(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, Any],
    reason: str | None,
) -> None:
    if reason is None:
        pytest.importorskip("triton", reason="Triton is not installed: pip install .[gpu]")
    found: list[str | None] = []

    def ask(state: Any, device: torch.device, own: dict[str, bool]) -> str | None:
        found.append(reason_against(state, torch.device("cuda"), own))
        with monkeypatch.context() as forced:
            forced.setenv("SOPA_KERNEL", "reference")
            found.append(reason_against(state, torch.device("cuda"), own))
        # a class of one's own says nothing yet
        state.model.head.__class__ = type("MyHead", (type(state.model.head),), {})
        found.append(reason_against(state, torch.device("cuda"), own))
        return reason_against(state, device, own)

    monkeypatch.setattr(accelerate_trainer, "reason_against", ask)
    with caplog.at_level("INFO"):
        run_experiment(config(**changes, trainer__num_epochs=1), tmp_path / "run")
    assert "CUDA graph" not in caplog.text  # on the CPU there is nothing to say
    assert found[0] is None if reason is None else reason in str(found[0])
    if reason is None:
        assert found[1:] == [
            "no kernel serves the encoder there",
            "not capturable as it is: head (MyHead)",
        ]


FROM_HOST = {torch.tensor, torch.as_tensor, torch.from_numpy, Tensor.new_tensor, Tensor.tolist}


class Calls(TorchFunctionMode):
    """Refuses what copies numbers from the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func not in FROM_HOST, func
        return func(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """Refuses tensors elsewhere than on `meta`, which stands for a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            assert not isinstance(each, Tensor) or each.device.type == "meta", func
        return result


def emptied(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


class Still(torch.optim.Adam):
    """Torch's own step is captured by contract, and does not run on `meta`."""

    def step(self, closure: Any = None) -> None:
        assert all(each.grad is not None for each in self.param_groups[0]["params"])


def take_without_numbers(model: TextClassifier, documents: Documents) -> Tensor:
    """A step on a device of which only shapes are known: what depends on numbers raises."""
    with FakeTensorMode():
        for module in model.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    module._parameters[name] = nn.Parameter(
                        emptied(parameter), parameter.requires_grad
                    )
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = emptied(buffer)
        trained = [each for each in model.parameters() if each.requires_grad]

        def learn(logits: Tensor, labels: Tensor) -> None:
            functional.cross_entropy(logits, labels, reduction="sum").backward()
            gradients = [each.grad for each in trained if each.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
            torch._foreach_mul_(gradients, (1 / (norm + 1e-6)).clamp(max=1))

        step = CapturedStep(model, Still(trained), documents, 8, learn)
        there: Any = step.documents
        for name in ("ids", "starts", "lengths", "labels"):
            setattr(there, name, emptied(getattr(there, name)))
        with Calls(), Operations():
            return step._step(128)


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.1},
        {"dropout": 0.1, "dropout_on": "scores", "boundary_tokens": True, "epsilon_scale": 0.5},
        {"semiring": "max_sum", "normalization": "layer", "encoding": "identity"},
        {"self_loop_scale": 0.5, "output": "log_score", "activation": "relu"},
        {"semiring": "sum_product", "encoding": "exp"},
    ],
    ids=str,
)
def test_the_host_has_no_say_in_a_step(workload: Workload, options: dict[str, Any]) -> None:
    model = workload.classifier(**options).train()
    assert isinstance(model.encoder, SopaEncoder)
    assert model.encoder.capturable
    assert take_without_numbers(model, workload.documents).shape == (8, 2)


def test_that_test_notices_what_it_is_for(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(forward: Callable[[Any, Tensor], Tensor]) -> None:
        model = workload.classifier().train()
        monkeypatch.setattr(type(model.head), "forward", forward)
        take_without_numbers(model, workload.documents)

    for forward in (
        lambda head, document: head.output(document[:, :25] * float(document.detach().sum())),
        lambda head, document: head.output(document[:, list(range(25))]),
        lambda head, document: head.output(document[:, :25] * document.new_tensor([1.0] * 25)),
        lambda head, document: head.output(document[:, :25][document[:, 0] > 0]),
        lambda head, document: head.output(document[:, :25] + torch.ones(25).to(document)),
    ):
        with pytest.raises(
            (AssertionError, DataDependentOutputException, DynamicOutputShapeException)
        ):
            replaced(forward)
