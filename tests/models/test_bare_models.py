"""Workers import models as layers alone; what is left out works all the same where something uses it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from unifiedserve.models.deferred_torch import import_torch

import_torch()
from unifiedserve.worker.process import prepare_interpreter

prepare_interpreter()
import transformers.models.qwen2.modeling_qwen2 as model
left = ("generation.logits_process", "tokenization_utils_base", "loss.loss_for_object_detection", "image_transforms")
assert not [name for name in left if f"transformers.{name}" in sys.modules]
assert "GenerationMixin" in str(model.Qwen2ForCausalLM.__bases__), "transformers looks for this name"
assert not model.Qwen2ForCausalLM.__doc__
"""


@pytest.mark.parametrize(
    ("use", "printed"),
    [
        ("import jinja2; print(jinja2.Template('{{ 1 + 1 }}').render())", "2"),
        (
            "from transformers import LogitsProcessorList as L; print(L.__module__)",
            "transformers.generation.logits_process",
        ),
        (
            "from transformers.generation import GenerateDecoderOnlyOutput as G; print(G.__name__)",
            "GenerateDecoderOnlyOutput",
        ),
        ("from transformers.processing_utils import ProcessorMixin as P; print(P.__name__)", "ProcessorMixin"),
        ("from transformers import ProcessorMixin as P; print(P.__name__)", "ProcessorMixin"),
        ("from transformers.loss.loss_utils import ForCausalLMLoss as f; print(f.__name__)", "ForCausalLMLoss"),
        (
            "from transformers.generation.continuous_batching.cache import PagedAttentionMemoryHandler as P; "
            "print(P.__name__)",
            "PagedAttentionMemoryHandler",
        ),
        ("from transformers import AutoTokenizer; print(AutoTokenizer.__name__)", "AutoTokenizer"),
    ],
    ids=["templates", "logits", "outputs", "processors", "processor", "losses", "pages", "tokenizers"],
)
def test_what_is_left_out_works_once_it_is_used(use: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM + use], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == (printed, 0), done.stderr


def test_whoever_has_imported_more_keeps_it() -> None:
    program = (
        "from unifiedserve.models.hub import load_transformers\n"
        "load_transformers()\n"
        "from transformers.generation import GenerationMixin\n"
        "from unifiedserve.worker.process import prepare_interpreter\n"
        "prepare_interpreter()\n"
        "import transformers.models.qwen2.modeling_qwen2 as model\n"
        "print(issubclass(model.Qwen2ForCausalLM, GenerationMixin), hasattr(model.Qwen2ForCausalLM, 'generate'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True True", done.stderr
