"""A family's language model may be any: what its attention needs and ours lacks is refused before it is served."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import internvl_with
from reference import transformers

ErrorOf = Callable[..., str]
SERVE = ("serve", "--port", "0", "--kv-cache-mib", "16", "--patch-buffer-mib", "16", "--visual-buffer-mib", "16")
EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16}


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        (
            "GptOssConfig",
            EXPERTS | {"max_position_embeddings": 131072},
            "the language model (gpt_oss) has an attention with s_aux, which is not supported",
        ),
        ("Gemma2Config", {"head_dim": 16}, "the language model (gemma2) has an attention with softcap, which is not"),
        (
            "Llama4TextConfig",
            EXPERTS | {"intermediate_size_mlp": 64, "interleave_moe_layer_step": 2},
            "layer_types has chunked_attention; supported are full_attention, linear_attention, sliding_attention",
        ),
    ],
)
def test_an_attention_that_is_not_known(
    tmp_path: Path, error_of: ErrorOf, capfd: pytest.CaptureFixture[str], name: str, sizes: dict[str, Any], words: str
) -> None:
    internvl_with(tmp_path, getattr(transformers, name), **sizes)
    capfd.readouterr()  # the bars of what saves it
    assert words in error_of(*SERVE, str(tmp_path))
