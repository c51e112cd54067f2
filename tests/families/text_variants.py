"""Variants of the families' text configs: what becomes of each, beside transformers' `generate`.

As a command it tries many and writes a table of family, field, value and result, as JSON and as markdown:

    PYTHONPATH=.:tests/suite:tests/checkpoints python tests/families/text_variants.py FOLDER
"""

import argparse
import dataclasses
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import reference  # first: transformers needs torchvision here
import torch
from builders import TEXT, save_model
from cases import user
from every_family import FAMILIES
from model_loop import Loop, Request, make_adapter
from reference import Case, transformers

from unifiedserve.device import CPU, Device
from unifiedserve.errors import ConfigError
from unifiedserve.models.processor import Processor
from unifiedserve.models.registry import load_processor

ANSWER = 10
CASES = [
    Case([user("What is a river?")]),
    Case([user("What is a river, and how does it differ from a lake? " * 3)]),
]
#: positions of a prompt from which on ropes of some kinds change: between the two cases' lengths, or within an answer
ORIGINAL = 40
LAYERS = ("full_attention", "sliding_attention", "linear_attention", "chunked_attention")
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2")
VALUES: dict[str, tuple[Any, ...]] = {
    "hidden_act": ACTIVATIONS,
    "hidden_activation": ACTIVATIONS,
    "sliding_window": (None, 10, 8192),
    "max_window_layers": (0, 1, 3),
    "num_key_value_heads": (1, 2, 6),
    "head_dim": (None, 16, 24, 32),
    "decoder_sparse_step": (1, 2),
    "mlp_only_layers": ([], [0], [0, 1, 2]),
    "num_experts_per_tok": (1, 2),
    "pretraining_tp": (1, 2),
    "final_logit_softcapping": (None, 5.0),
    "attn_logit_softcapping": (None, 5.0),
    "query_pre_attn_scalar": (16, 20),
    "attention_chunk_size": (None, 10, 8192),
    "no_rope_layers": (None, [1, 1, 1], [0, 1, 0], [0, 0, 0]),
    "no_rope_layer_interval": (1, 2, 4),
    "floor_scale": (4, 8192),
    "attn_scale": (0.1, 1.0),
    "moe_layers": ([], [0], [0, 1, 2]),
    "interleave_moe_layer_step": (1, 2),
    "swiglu_alpha": (1.0, 1.702),
    "swiglu_limit": (0.5, 7.0),
    "linear_conv_kernel_dim": (2, 4),
    "pad_token_id": (None, 1),
    "rms_norm_eps": (1e-6, 1e-2),
    "cross_attention_layers": ([1, 3], [0, 4], [2]),
}


#: sizes of language models beside those of all families; a model takes what it knows
LANGUAGE_MODEL_SIZES: dict[str, Any] = {
    "pad_token_id": 0,
    "head_dim": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
#: families that take any language model
OPEN = ("internvl", "llava", "llava_next", "llava_next_video", "llava_onevision", "idefics3", "smolvlm", "minicpmv4_6")

Change = Callable[[dict[str, Any]], object]


class Variant(NamedTuple):
    """One field of a family's text config that has another value."""

    family: str
    field: str
    value: Any

    def change(self, config: dict[str, Any]) -> None:
        """Give the field that value in a config.json."""
        config.get("text_config", config)[self.field] = self.value


class Result(NamedTuple):
    """What became of a variant; with a reason unless it is "equal"."""

    kind: str  # equal, refused, refused by both, different, crashed, refused by transformers alone
    reason: str = ""

    @property
    def right(self) -> bool:
        """Whether a user gets transformers' answers, or is told in a line why there are none."""
        return self.kind in ("equal", "refused", "refused by both")


def try_changed(change: Change, base: Path, directory: Path) -> Result:
    """Make a changed checkpoint, and compare its answers."""
    try:
        write_changed(change, base, directory)
        hf = reference.load(directory)
        expected = [hf.generate(case, ANSWER) for case in CASES]
    except Exception as error:
        return _ours_alone(directory, error)
    return compare(directory, expected)


def write_changed(change: Change, base: Path, directory: Path) -> None:
    """Write the checkpoint `base` with a changed config; with its own weights if transformers makes no model of it."""
    shutil.copytree(base, directory)
    config = transformers.AutoConfig.from_pretrained(base)
    values = config.to_dict()
    change(values)
    (directory / "config.json").write_text(json.dumps(values, default=str))
    save_model(directory, type(config).from_dict(values))


def with_language_model(name: str, base: Path) -> Change:
    """Return what puts a text model that transformers knows by `name` into a checkpoint's config."""
    text = transformers.AutoConfig.from_pretrained(base).get_text_config()
    sizes = {size: getattr(text, size) for size in ("vocab_size", "eos_token_id", *TEXT)}
    config = transformers.AutoConfig.for_model(name, **sizes, **LANGUAGE_MODEL_SIZES).to_dict()
    return lambda values: values.update(text_config=config)


def _ours_alone(directory: Path, theirs: Exception) -> Result:
    """Return what becomes of a checkpoint with which transformers raises an error."""
    result = compare(directory, [])
    if result.kind == "different":
        return Result("refused by transformers alone", _first_line(theirs))
    return Result("refused by both", result.reason) if result.kind == "refused" else result


def compare(directory: Path, expected: list[list[int]], device: Device = CPU) -> Result:
    """Compare our answers, alone in one piece, and together in chunks, with those expected."""
    try:
        answers = _answers(directory, device)
    except ConfigError as error:
        return Result("refused", " ".join(str(error).split()))
    except Exception as error:
        return Result("crashed", f"{type(error).__name__}: {_first_line(error)}")
    wrong = [how for how, given in answers.items() if given != expected]
    return Result("different", ", ".join(wrong)) if wrong else Result("equal")


def requests_of(ours: Processor, cases: list[Case]) -> list[Request]:
    """Return requests without media."""
    nothing = torch.empty(0, ours.patch_row_bytes, dtype=torch.uint8)
    return [Request(ours.prompt(case.messages, []), nothing) for case in cases]


def _answers(directory: Path, device: Device) -> dict[str, list[list[int]]]:
    ours = load_processor(directory)
    loop = Loop(make_adapter(directory, torch.float32, device), pages=4096)

    def ask(cases: list[Case], chunk: int) -> list[list[int]]:
        requests = requests_of(ours, cases)
        answers = loop.generate(requests, ANSWER, chunk, ours.eos_token_ids)
        for request in requests:
            loop.preempt(request)
        return answers

    try:
        alone = [answer for case in CASES for answer in ask([case], 1 << 30)]
        return {"alone": alone, "in chunks": ask(CASES, 7), "together": ask(CASES, 1 << 30)}
    finally:
        loop.close()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def variants(family: str, base: Path) -> Iterator[Variant]:
    """Yield the variants of a family: booleans both ways, and fields of `VALUES`, ropes and kinds of layers."""
    text = transformers.AutoConfig.from_pretrained(base).get_text_config()
    own = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    own.add("output_router_logits")  # asks transformers for more than an answer
    for field in dataclasses.fields(type(text)):
        values = VALUES.get(field.name, ())
        if field.name not in own and "bool" in getattr(field.type, "__name__", str(field.type)):
            values = (False, True)
        yield from (Variant(family, field.name, value) for value in values)
    yield from (Variant(family, "is_causal", value) for value in (True, False))
    yield from (Variant(family, "layer_types", list(kinds)) for kinds in _layer_types(text.num_hidden_layers))
    yield from (Variant(family, "rope_parameters", rope) for rope in _ropes(text))


def _layer_types(layers: int) -> Iterator[list[str]]:
    for kind in LAYERS:
        yield [kind] * layers
        yield [kind, *["full_attention"] * (layers - 1)]


def _ropes(text: Any) -> Iterator[dict[str, Any]]:
    """Yield ropes of all kinds, in the form that the text config has."""
    given = getattr(text, "rope_parameters", None) or {}
    nested = {name: rope for name, rope in given.items() if isinstance(rope, dict)}
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    for rope in _rope_kinds(head, given.get("partial_rotary_factor", 1.0)):
        yield {name: {**one, **rope} for name, one in nested.items()} if nested else {**given, **rope}


def _rope_kinds(head: int, rotated: float) -> Iterator[dict[str, Any]]:
    pairs = int(head * rotated) // 2
    long = {"original_max_position_embeddings": ORIGINAL, "factor": 4.0}
    factors = {"short_factor": [1.0 + 0.05 * i for i in range(pairs)], "long_factor": [2.0 + i for i in range(pairs)]}
    yield {"rope_type": "default"}
    yield {"rope_type": "linear", "factor": 4.0}
    yield {"rope_type": "dynamic", "factor": 4.0}
    yield {"rope_type": "yarn", **long}
    yield {"rope_type": "llama3", **long, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    yield {"rope_type": "longrope", **long, **factors}
    yield {"rope_type": "longrope", **long, **factors, "original_max_position_embeddings": 20}
    yield {"rope_type": "proportional", "partial_rotary_factor": 0.5}
    yield {"rope_type": "default", "partial_rotary_factor": 0.5}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where variants.json and variants.md are written")
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), help="families whose fields are tried")
    parser.add_argument("--language-models", nargs="*", default=[], help="model types tried in families that take any")
    parser.add_argument("--fields", nargs="*", help="only these fields of the text configs")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def note(variant: Variant, change: Change, base: Path) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            result = try_changed(change, base, Path(folder) / "variant")
        reason = result.reason.replace(f"{folder}/variant/", "").replace(f"{folder}/", "")
        rows.append({**variant._asdict(), "result": result.kind, "reason": reason, "right": result.right})
        if not result.right:
            print(variant, *result, sep="  ", flush=True)
        return result.kind == "equal"

    def note_fields(name: str, base: Path) -> None:
        for variant in variants(name, base):
            if variant.field in (arguments.fields or [variant.field]):
                note(variant, variant.change, base)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for family in {*arguments.families, *(OPEN if arguments.language_models else ())}:
            FAMILIES[family].make(folder / family)
        for family in arguments.families:
            note_fields(family, folder / family)
        for model, family in product(arguments.language_models, OPEN):
            base, name = folder / family, f"{family} with {model}"
            change = with_language_model(model, base)
            if note(Variant(family, "text_config.model_type", model), change, base) and family == OPEN[0]:
                write_changed(change, base, folder / name)
                note_fields(name, folder / name)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (arguments.folder / "variants.json").write_text(json.dumps(rows, indent=1) + "\n")
    (arguments.folder / "variants.md").write_text(f"{_table(_summary(rows))}\n{_table(rows)}")
    print(Counter(row["result"] for row in rows))


def _summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how often each result came of each family's fields."""
    kinds = sorted({row["result"] for row in rows})
    names = dict.fromkeys(row["family"] for row in rows)
    found = {name: Counter(row["result"] for row in rows if row["family"] == name) for name in names}
    return [{"family": family} | {kind: counts[kind] for kind in kinds} for family, counts in found.items()]


def _table(rows: list[dict[str, Any]]) -> str:
    columns = [name for name in rows[0] if name != "right"]
    lines = ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    lines += ["| " + " | ".join(str(row[name]).replace("|", "\\|") for name in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
