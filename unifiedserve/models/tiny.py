"""Make a tiny Qwen2.5-VL checkpoint with random weights, in the layout of those on the hub; needs no network.

    python -m unifiedserve.models.tiny DIRECTORY

It answers nonsense, but everything about it is real: tokenizer, chat template, processors, window attention, grouped
query attention, M-RoPE. The same seed makes the same bytes.
"""

import argparse
import json
import math
import random
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor

from unifiedserve.models.hub import transformers

VOCABULARY = 1024  # before the special tokens
CONTEXT = 32768

SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN_TOKENS = ["<tool_call>", "</tool_call>"]  # added tokens that count as text

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

# Renders what the templates of Qwen2-VL and Qwen2.5-VL render, tools aside.
CHAT_TEMPLATE = """\
{%- if messages[0].role != 'system' -%}
<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type == 'image' -%}
<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'video' -%}
<|vision_start|><|video_pad|><|vision_end|>
{%- elif part.type == 'text' -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"""

# Sharper attention with a say in the result: else the answer is a chain of words that each follow from the last.
GAINS = {"q_proj": 2.0, "k_proj": 2.0, "o_proj": 3.0}

IMAGE_RULES = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 56 * 56,
    "max_pixels": 28 * 28 * 256,
}
VIDEO_RULES = {
    "video_processor_type": "Qwen2VLVideoProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 56 * 56,
    "max_pixels": 28 * 28 * 64,
    "do_sample_frames": True,
    "fps": 2.0,
    "min_frames": 4,
    "max_frames": 256,
    "cap_pixels_per_frame": False,
}
PATCHES = {
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def make_checkpoint(directory: Path, seed: int = 0, sizes: dict[str, Any] | None = None) -> Path:
    """Write the checkpoint's files into `directory` (made if needed), overwriting those of the same names.

    `sizes` are fields of config.json to make it larger, those of the vision tower under "vision_config".
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(seed)
    vocabulary = tokenizer.get_vocab()
    ids = {token: vocabulary[token] for token in SPECIAL_TOKENS}
    tokenizer.save(str(directory / "tokenizer.json"))
    _write(directory / "tokenizer_config.json", _tokenizer_config(tokenizer))
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, "utf-8")
    _write(directory / "preprocessor_config.json", IMAGE_RULES | PATCHES)
    _write(directory / "video_preprocessor_config.json", VIDEO_RULES | PATCHES)
    config = _model_config(len(vocabulary), ids)
    vision = config["vision_config"] | (sizes or {}).get("vision_config", {})
    config |= (sizes or {}) | {"vision_config": vision}
    _write(directory / "config.json", config)
    _write(
        directory / "generation_config.json",
        {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "pad_token_id": ids["<|endoftext|>"]},
    )
    weights = make_weights(config, seed)
    weights["lm_head.weight"] *= _prominence(tokenizer)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


def make_tokenizer(seed: int) -> Tokenizer:
    """Byte-level BPE, trained on sentences of common words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sentences(seed), trainer)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in PLAIN_TOKENS])
    return tokenizer


def make_weights(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """bfloat16 tensors under the names that Qwen2.5-VL checkpoints on the hub use."""
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(
            transformers.Qwen2_5_VLConfig.from_dict(dict(config))
        )
    generator = torch.Generator().manual_seed(seed)
    return {
        name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): _initial(
            name, tensor, generator
        ).to(torch.bfloat16)
        for name, tensor in sorted(model.state_dict().items())
    }


def _initial(name: str, like: Tensor, generator: torch.Generator) -> Tensor:
    """Weights for which depth and context matter, unlike transformers' initialisation (deviation 0.02)."""
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
    """[vocab, 1] factors that spread the logits, and make whole words likelier than fragments and special tokens."""
    vocabulary = tokenizer.get_vocab()
    factors = torch.full((len(vocabulary), 1), 2.0, dtype=torch.bfloat16)
    factors[[index for token, index in vocabulary.items() if token.startswith("Ġ")]] = 4.0
    factors[[vocabulary[token] for token in SPECIAL_TOKENS]] = 1.0
    factors[vocabulary["<|im_end|>"]] = 3.0
    return factors


def _sentences(seed: int) -> list[str]:
    words, choose = WORDS.split(), random.Random(seed)
    return [" ".join(choose.choices(words, k=12)).capitalize() + "." for _ in range(2000)]


def _model_config(vocabulary: int, ids: dict[str, int]) -> dict[str, Any]:
    """Laid out flat, with the text model's fields at the top, as in the checkpoints on the hub."""
    return {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "torch_dtype": "bfloat16",
        "vocab_size": vocabulary,
        "hidden_size": 192,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "vision_config": {
            "model_type": "qwen2_5_vl",
            "depth": 4,
            "hidden_size": 96,
            "intermediate_size": 256,
            "num_heads": 4,
            "in_chans": 3,
            "out_hidden_size": 192,
            "patch_size": 14,
            "spatial_patch_size": 14,
            "temporal_patch_size": 2,
            "spatial_merge_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [3],
            "tokens_per_second": 2,
            "hidden_act": "silu",
        },
    }


def _tokenizer_config(tokenizer: Tokenizer) -> dict[str, Any]:
    added = {
        str(index): {
            "content": token.content,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": token.special,
        }
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": added,
        "additional_special_tokens": SPECIAL_TOKENS[1:],
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
    }


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m unifiedserve.models.tiny", description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=Path)
    make_checkpoint(parser.parse_args().directory)
