"""Make a tiny Qwen2.5-VL checkpoint with random weights, laid out as on the hub. Needs no network.

    python -m unifiedserve.models.tiny DIRECTORY

It answers nonsense, but everything about it is real: tokenizer, chat template, processors, window attention, grouped
query attention, M-RoPE. The same seed makes the same bytes.
"""

import argparse
import math
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from unifiedserve.models.checkpoint_files import SPECIAL_TOKENS, hub_name, model_config, train_tokenizer, write_files
from unifiedserve.models.hub import load_transformers

VOCABULARY = 1024  # tokens before the special ones

WORDS = """
a about above across after again air all along also always an and animal another answer any are around as ask at away
back ball be beach because before behind below between big bird black blue boat both box boy bright brown building bus
but by camera can car cat chair child city clear close cloud cold colour come could cup cut dark day deep dog door down
draw drive each early earth eat end evening every eye face fall far fast feet few field find fire first fish five floor
flower fly follow food foot for forest found four frame friend from front full garden get girl glass go gold good grass
great green ground group grow hair half hand happy hard has have he head hear heavy help her here high hill his hold
home horse hot house how hundred if image in into is it jump just keep kind know lake lamp land large last late laugh
leaf leave left leg less let letter life light like line list little long look low machine make man many map may mean
metal middle might mile minute moment moon more morning most mountain mouth move much music must name near never new
next night no north not nothing now number ocean of off often old on once one only open or orange other our out over
page paint paper part pass path people person picture piece place plain plant play point pool quick quiet rain read red
rest ride right river road rock room round run sail same sand say scene school sea second see seem seven shadow shape
she ship shoe short show side sign simple sing sit six sky sleep slow small smile snow so some song soon sound south
space stand star start step still stone stop story street strong summer sun surface swim table take talk tall tell ten
than that the their them then there these they thing think this those three through time to today together top toward
town train travel tree true try turn two under until up use valley very video voice wait walk wall warm was watch water
wave way we wear week well were west wet what wheel when where which while white who wide wild will wind window wing
winter wish with without woman wood word work world would write year yellow yes yet you young
"""

TEXT = {
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
}
VISION = {"depth": 4, "hidden_size": 96, "intermediate_size": 256, "num_heads": 4, "fullatt_block_indexes": [3]}

# Sharper attention with a say in the result: else the answer is a chain of words that each follow from the last.
GAINS = {"q_proj": 2.0, "k_proj": 2.0, "o_proj": 3.0}


def make_checkpoint(directory: Path, seed: int = 0, sizes: dict[str, Any] | None = None) -> Path:
    """Write the checkpoint's files into `directory` (made if needed), overwriting those of the same names.

    `sizes` are fields of config.json to make it larger, those of the vision tower under "vision_config".
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(seed)
    config = model_config(tokenizer, TEXT, VISION)
    vision = config["vision_config"] | (sizes or {}).get("vision_config", {})
    config |= (sizes or {}) | {"vision_config": vision}
    write_files(directory, config, tokenizer)
    weights = make_weights(config, seed)
    weights["lm_head.weight"] *= _prominence(tokenizer)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def make_tokenizer(seed: int) -> Tokenizer:
    """Train byte-level BPE on sentences of common words."""
    return train_tokenizer(_sentences(seed), VOCABULARY)


def make_weights(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Make bfloat16 tensors under the names that Qwen2.5-VL checkpoints on the hub use."""
    library = load_transformers()
    with torch.device("meta"):
        model = library.AutoModelForImageTextToText.from_config(library.Qwen2_5_VLConfig.from_dict(dict(config)))
    generator = torch.Generator().manual_seed(seed)
    return {
        hub_name(name): _initial(name, tensor, generator).to(torch.bfloat16)
        for name, tensor in sorted(model.state_dict().items())
    }


def _initial(name: str, like: Tensor, generator: torch.Generator) -> Tensor:
    """Draw weights for which depth and context matter, unlike transformers' initialisation (deviation 0.02)."""
    values = torch.randn(like.shape, generator=generator)
    if "norm" in name or "ln_q" in name:
        return 1 + 0.1 * values
    if name.endswith("bias"):
        return 0.1 * values
    if "embed_tokens" in name:
        return 0.5 * values
    gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
    return values * gain / math.sqrt(math.prod(like.shape[1:]))


def _prominence(tokenizer: Tokenizer) -> Tensor:
    """Return factors [vocab, 1] that spread the logits and make whole words likelier than fragments."""
    vocabulary = tokenizer.get_vocab()
    factors = torch.full((len(vocabulary), 1), 2.0, dtype=torch.bfloat16)
    factors[[index for token, index in vocabulary.items() if token.startswith("Ġ")]] = 4.0
    factors[[vocabulary[token] for token in SPECIAL_TOKENS]] = 1.0
    factors[vocabulary["<|im_end|>"]] = 3.0
    return factors


def _sentences(seed: int) -> list[str]:
    words, choose = WORDS.split(), random.Random(seed)
    return [" ".join(choose.choices(words, k=12)).capitalize() + "." for _ in range(2000)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m unifiedserve.models.tiny", description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    make_checkpoint(parser.parse_args().directory)
