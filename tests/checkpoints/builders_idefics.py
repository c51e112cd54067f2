"""Idefics3 and SmolVLM: tiles of 56 pixels, four visual tokens each."""

from pathlib import Path
from typing import Any

import pytest
from builders import VISION, chat_template, family, save, text_sizes, tokenizer
from reference import transformers

SIDE = {"longest_edge": 56}
SPECIAL = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<row_1_col_1>")


def _config(kind: str, tokens: Any) -> Any:
    vision = transformers.AutoConfig.for_model(f"{kind}_vision", **VISION)
    return transformers.AutoConfig.for_model(
        kind,
        text_config=transformers.LlamaConfig(**text_sizes(tokens)),
        vision_config=vision.to_dict(),
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokens.pad_token_id,
    )


@family("image")
def idefics3(directory: Path) -> None:
    tokens = tokenizer(*SPECIAL)
    rules = transformers.Idefics3ImageProcessor(size={"longest_edge": 200}, max_image_size=SIDE)
    processor = transformers.Idefics3Processor(rules, tokens, image_seq_len=4)
    save(directory, _config("idefics3", tokens), processor, chat_template({"image": "<image>\n"}))


@family("image", "video", mixed=False)  # its processor gives both the same name
def smolvlm(directory: Path) -> None:
    pytest.importorskip("num2words", reason="transformers' processor of SmolVLM needs it")
    tokens = tokenizer(*SPECIAL)
    rules = transformers.SmolVLMImageProcessor(size={"longest_edge": 170}, max_image_size=SIDE)
    sampling = {"max_frames": 6, "fps": 2, "video_size": {"longest_edge": 150}}
    video_rules = transformers.SmolVLMVideoProcessor(max_image_size=SIDE, video_sampling=sampling)
    processor = transformers.SmolVLMProcessor(rules, tokens, video_rules, image_seq_len=4)
    save(directory, _config("smolvlm", tokens), processor, chat_template({"image": "<image>", "video": "<video>"}))
