"""Unmodified clients against real daemons: each a program of its own, in an environment of its own (`make clients`)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from daemon import Daemon

import unifiedserve

FOLDER = Path(__file__).parent
ENVIRONMENTS = Path(sys.prefix) / "clients"
INTERPRETERS = {
    "here": sys.executable,
    "openai2": str(ENVIRONMENTS / "openai2" / "bin" / "python"),
    "openai3": str(ENVIRONMENTS / "openai3" / "bin" / "python"),
    "node": str(FOLDER / "node_modules" / ".bin" / "node"),
    "curl": "bash",
}
SAMPLES = Path(unifiedserve.__file__).parent / "samples"
# They ask nobody but the daemon: no prices, no traces.
ALONE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}


def run(environment: str, program: str, daemon: Daemon) -> None:
    """Run a program to its end; raise what it says if it fails."""
    interpreter = INTERPRETERS[environment]
    if not shutil.which(interpreter) or (environment == "curl" and not shutil.which("curl")):
        pytest.skip("needs curl" if environment == "curl" else "run `make clients` first")
    command = [interpreter, str(FOLDER / program), f"{daemon.url}/v1", daemon.engine.model_name, str(SAMPLES)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ALONE})
    assert result.returncode == 0, result.stdout + result.stderr
    daemon.wait_idle()


@pytest.mark.daemon(
    "what clients send and read again", model="bundled", served_model_name="shapes", chat_template="agents"
)
@pytest.mark.parametrize(
    ("environment", "program"),
    [
        ("here", "with_openai.py"),
        ("openai2", "with_openai.py"),
        ("openai3", "with_openai_agents.py"),
        ("openai3", "with_langchain.py"),
        ("openai3", "with_litellm.py"),
        ("openai3", "with_pydantic_ai.py"),
        ("openai2", "with_instructor.py"),
        ("openai2", "with_llama_index.py"),
        ("node", "with_openai.mjs"),
        ("node", "with_ai_sdk.mjs"),
        ("curl", "with_curl.sh"),
    ],
)
def test_answers(environment: str, program: str, daemon: Daemon) -> None:
    run(environment, f"chat/{program}", daemon)


@pytest.mark.daemon("vectors by clients", model="pooled_texts", served_model_name="vectors")
@pytest.mark.parametrize(
    ("environment", "program"),
    [
        ("here", "with_openai.py"),
        ("openai2", "with_openai.py"),
        ("openai3", "with_langchain.py"),
        ("openai3", "with_litellm.py"),
        ("openai2", "with_llama_index.py"),
        ("node", "with_npm.mjs"),
    ],
)
def test_vectors(environment: str, program: str, daemon: Daemon) -> None:
    run(environment, f"embeddings/{program}", daemon)
