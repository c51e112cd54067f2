"""Compare a GGUF file here and in llama.cpp: fifty greedy answers, and perplexity.

answers      llama.cpp's, as its server gives them without sampling. All of one is then put through our kernels at once:
             the answer is ours, too, if each of its tokens is the likeliest there.
perplexity   by llama-perplexity, and by its rule here: of windows of 512 tokens, the second half counts

    python bench/serve_cpu/install_llamacpp.py
    python bench/gguf_peer.py model.gguf             # results are added to bench/results/gguf-peer.json
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import torch
from divergence import WINDOW, Divergence, Model, Passage

from unifiedserve.config import EngineConfig
from unifiedserve.messages.media import ExpandedPrompt
from unifiedserve.models.gguf.folder import gguf_folder
from unifiedserve.models.registry import load_processor

sys.path.append(str(Path(__file__).parent / "serve_cpu"))

import install_llamacpp
from servers import Server, running

RESULTS = Path(__file__).parent / "results" / "gguf-peer.json"
TEXT = Path(__file__).parent / "texts" / "predicted.txt"
SUBJECTS = ("a river", "the moon", "bread", "a bicycle", "rain", "a library", "glass", "the heart", "music", "winter")
QUESTIONS = (
    "What is {}?",
    "Tell me a fact about {}.",
    "Why do people need {}?",
    "Describe {} to a child.",
    "Who studies {}?",
)
TOKENS = 48
FIRST = WINDOW // 2 + 1  # token of a window that llama-perplexity counts


def prompts(processor: Any) -> Iterator[list[int]]:
    """Return the questions' tokens: as chats, or as they are for a model without a chat template."""
    for question in QUESTIONS:
        for subject in SUBJECTS:
            text = question.format(subject)
            if processor.chat.template is None:
                yield list(processor.tokenizer(text)["input_ids"])
            else:
                message = {"role": "user", "content": [{"type": "text", "text": text}]}
                yield list(processor.prompt([message], []).token_ids)


def answers_there(file: Path, llamacpp: Path, asked: Sequence[list[int]]) -> list[list[int]]:
    """Return llama.cpp's greedy answers, in tokens."""
    program = install_llamacpp.program(llamacpp, "llama-server")
    command = [str(program), "--model", str(file), "--parallel", "1", "--ctx-size", "2048", "--no-ui"]
    fields = {"n_predict": TOKENS, "temperature": 0, "return_tokens": True, "cache_prompt": False}
    with tempfile.TemporaryDirectory() as logs, running(Server(command), Path(logs, "log")) as (url, _):
        replies = (httpx.post(f"{url}/completion", json={"prompt": each, **fields}, timeout=600) for each in asked)
        return [reply.raise_for_status().json()["tokens"] for reply in replies]


@torch.inference_mode()
def compare_answers(model: Model, asked: Sequence[list[int]], given: Sequence[list[int]]) -> dict[str, Any]:
    """Count equal answers and equal tokens, with the largest gap where tokens differ."""
    equal, places, same, gaps = 0, 0, 0, [0.0]
    for prompt, answer in zip(asked, given, strict=True):
        logprobs = model.logprobs(Passage(ExpandedPrompt([*prompt, *answer], [], []), len(prompt)))
        best, chosen = logprobs.max(-1).values, logprobs.gather(1, torch.tensor(answer)[:, None])[:, 0]
        behind = (best - chosen).tolist()
        gaps += behind
        places, same, equal = places + len(answer), same + behind.count(0.0), equal + (not any(behind))
    return {"answers": len(given), "equal": equal, "places": places, "same": same, "largest_gap_nats": max(gaps)}


def perplexity_there(file: Path, llamacpp: Path, text: Path, windows: int) -> float:
    program = install_llamacpp.program(llamacpp, "llama-perplexity")
    command = [str(program), "-m", str(file), "-f", str(text), "-c", str(WINDOW), "--chunks", str(windows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"Final estimate: PPL = ([\d.]+)", done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"llama-perplexity says nothing: {done.stderr[-500:]}")
    return float(found[1])


@torch.inference_mode()
def perplexity_here(model: Model, processor: Any, text: Path, windows: int) -> float:
    ids = list(processor.tokenizer(text.read_text())["input_ids"])
    opening = processor.tokenizer.bos_token_id if ids[0] == processor.tokenizer.bos_token_id else None
    found = Divergence(0)
    for start in range(0, windows * WINDOW, WINDOW):
        window = ids[start : start + WINDOW]
        if opening is not None:
            window[0] = opening
        logprobs = model.logprobs(Passage(ExpandedPrompt(window, [], []), FIRST))
        found.add(logprobs, logprobs, torch.tensor(window[FIRST:]))
    return found.perplexity


def measure(file: Path, llamacpp: Path, text: Path, windows: int, dtype: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as cache, ExitStack() as stack:
        folder = gguf_folder(file, Path(cache))
        processor = load_processor(folder)
        asked = list(prompts(processor))
        given = answers_there(file, llamacpp, asked)
        model = Model(folder, EngineConfig.of(dtype=dtype), stack)
        found = compare_answers(model, asked, given)
        here = perplexity_here(model, processor, text, windows)
        del model
    there = perplexity_there(file, llamacpp, text, windows)
    return found | {"dtype": dtype, "perplexity": here, "perplexity_llamacpp": there, "ratio": here / there}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, default=TEXT, help="what is predicted (default: texts/predicted.txt)")
    parser.add_argument("--windows", type=int, default=8, help="of 512 tokens of it (default: %(default)s)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--llamacpp", type=Path, default=install_llamacpp.DEFAULT_FOLDER)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    if not install_llamacpp.is_installed(args.llamacpp):
        raise SystemExit("python bench/serve_cpu/install_llamacpp.py: it builds llama.cpp")
    found = json.loads(args.results.read_text()) if args.results.exists() else {}
    for file in args.files:
        found[file.name] = measure(file, args.llamacpp, args.text, args.windows, args.dtype)
        print(file.name, json.dumps(found[file.name]), flush=True)
    args.results.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
