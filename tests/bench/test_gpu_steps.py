"""The steps that the GPU bench measures, on the processor with a tiny model: they run, and their figures agree."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from deferred import DeferredDevice

from bench.gpu import dummy_model
from bench.gpu.figures import Figures
from bench.gpu.items import batch_invariance, model_steps
from bench.gpu.items.model_steps import Sizes, measure_folder
from bench.gpu.shapes import make_folder
from unifiedserve.config import EngineConfig
from unifiedserve.device import open_device
from unifiedserve.worker.language.model import LanguageModel

SIZES = Sizes(context=64, batches=(1, 3), chunk=8, pictures=((112, 56),), copied=1 << 20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("shapes") / "tiny", "tiny")


def test_every_step_is_measured_beside_its_floor(folder: Path, tmp_path: Path) -> None:
    device = open_device("cpu", EngineConfig())
    measure_folder(Figures(tmp_path / "figures"), folder, device, SIZES)
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    assert figures["sequences_share_pages"] is False
    rows = {row["step"]: row for row in figures["steps"]}
    assert list(rows) == ["decode 1 × 64", "decode 3 × 64", "prefill 8 after 64", "encode 32 patches"]
    assert {row["step"] for row in figures["kernels"]} == rows.keys()
    for row in rows.values():
        assert 0 < row["issued_ms"] <= row["ms"]
    # one more sequence reads the keys and values of its context, in 4 layers of 2 heads of 32
    per_sequence = 64 * 4 * 2 * 2 * 32 * torch.bfloat16.itemsize / figures["copy_gb_s"] / 1e6
    first, second = rows["decode 1 × 64"], rows["decode 3 × 64"]
    assert second["floor_ms"] - first["floor_ms"] == pytest.approx(2 * per_sequence)
    assert second["of_floor"] == pytest.approx(second["ms"] / second["floor_ms"])
    assert second["tokens_s"] == pytest.approx(3 / second["ms"] * 1e3)


def test_sequences_share_pages_where_there_are_too_few(folder: Path) -> None:
    adapter = dummy_model.load(folder, open_device("cpu", EngineConfig()))
    model = LanguageModel(adapter, dummy_model.make_cache(adapter, 7))
    batch = dummy_model.make_batch(model, 3, 63, 1)
    assert [sorted(rows.pages) for rows in batch] != [sorted(batch[0].pages)] * 3
    assert {page for rows in batch for page in rows.pages} == set(range(7))
    assert torch.cat(model.run(batch)).isfinite().all()


def test_a_step_reads_all_weights_but_the_embedding_and_the_vision_tower(folder: Path) -> None:
    adapter = dummy_model.load(folder, open_device("cpu", EngineConfig()))
    layers, head = dummy_model.weight_bytes(adapter)
    sizes = {name: weight.nbytes for name, weight in adapter.model.named_parameters() if ".visual." not in name}
    assert head == sizes["lm_head.weight"]
    assert layers + head == sum(sizes.values()) - sizes["model.language_model.embed_tokens.weight"]


def test_steps_that_a_device_does_by_itself_are_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = dummy_model.load(folder, DeferredDevice())
    monkeypatch.setattr(torch.Tensor, "normal_", torch.Tensor.zero_)  # the stand-in has no random numbers
    model = LanguageModel(adapter, dummy_model.make_cache(adapter, 3 * 8))
    decoder = adapter.decoder(model.kv, 3, 64 + model_steps.AHEAD + 1)
    assert decoder is not None
    times = model_steps.ahead(decoder, model, 3, 64)
    assert times.issued > 0
    assert times.done > 0


WAYS = "together, in chunks", "again from the middle"
COMPANY = batch_invariance.Sizes(
    prompts=(20, 5),
    tokens=6,
    usual_tokens=4,
    chunk=8,
    batches=(1,),
    context=32,
    prompt=16,
    pictures=((112, 56), (56, 56)),
)


def test_texts_are_compared_alone_and_in_company(folder: Path, tmp_path: Path) -> None:
    """On a processor, where they are always the same."""
    device = open_device("cpu", EngineConfig())
    batch_invariance.measure_folder(Figures(tmp_path / "figures"), folder, device, device, COMPANY)
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    for name, tokens in ("invariant", 6), ("usual", 4):
        assert figures["same_tokens"][name] == {way: [tokens, tokens] for way in WAYS}
    assert figures["same_pictures"] == {"invariant": True, "usual": True}
    assert figures["cost"].keys() == {"prefill 16", "encode 32 patches"}


def test_texts_that_depend_on_their_company_are_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = batch_invariance.write

    def by_company(model: LanguageModel, prompts: Any, tokens: int, chunk: int) -> list[list[int]]:
        texts = write(model, prompts, tokens, chunk)
        texts[-1][-1] += len(prompts) > 1 and len(prompts[0]) == 20
        return texts

    monkeypatch.setattr(batch_invariance, "write", by_company)
    device = open_device("cpu", EngineConfig())
    with pytest.raises(RuntimeError, match="others than alone: together, in chunks"):
        batch_invariance.measure_folder(Figures(tmp_path / "figures"), folder, device, device, COMPANY)
    figures = json.loads((tmp_path / "figures").read_text())["figures"]
    assert figures["same_tokens"]["invariant"]["together, in chunks"] == [6, 5]


def test_recorded_steps_write_the_same_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = dummy_model.load(folder, DeferredDevice())
    monkeypatch.setattr(torch.Tensor, "normal_", torch.Tensor.zero_)  # the stand-in has no random numbers
    model = LanguageModel(adapter, dummy_model.make_cache(adapter, 8))
    assert adapter.decoder(model.kv, 1, 32) is not None
    assert batch_invariance.compare(model, COMPANY) == {way: [6, 6] for way in WAYS}
