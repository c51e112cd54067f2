"""Llama 3.2 Vision: up to four tiles of 56 pixels, 17 visual tokens each; the image token is behind the vocabulary."""

from pathlib import Path

from builders import VISION, chat_template, family, save, text_sizes, tokenizer
from reference import transformers

SIDE = VISION["image_size"]
IMAGE = "<|image|>"


@family("image")
def mllama(directory: Path) -> None:
    tokens = tokenizer("<|python_tag|>", bos="<|begin_of_text|>")
    tokens.add_special_tokens({"additional_special_tokens": [IMAGE]})
    image_id = tokens.convert_tokens_to_ids(IMAGE)
    sizes = {**text_sizes(tokens), "vocab_size": image_id, "num_hidden_layers": 5, "cross_attention_layers": [1, 3]}
    config = transformers.MllamaConfig(
        text_config=transformers.MllamaTextConfig(**sizes, bos_token_id=tokens.bos_token_id, pad_token_id=0),
        vision_config=transformers.MllamaVisionConfig(
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_global_layers=2,
            attention_heads=4,
            image_size=SIDE,
            patch_size=14,
            intermediate_layers_indices=[0, 2],
            vision_output_dim=3 * 64,
        ),
        image_token_index=image_id,
    )
    rules = transformers.MllamaImageProcessor(size={"height": SIDE, "width": SIDE})
    template = "{{- bos_token -}}\n" + chat_template({"image": IMAGE})
    save(directory, config, transformers.MllamaProcessor(rules, tokens), template)
