"""Broken checkpoints: a daemon that is given one ends with a clear line and code 2, and leaves nothing behind."""

import asyncio
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import httpx

from bench.campaign.asking import CHAT, chat
from bench.campaign.cases import Kind, Seen, Target, ViolationError
from unifiedserve.cli.daemon import READY, STEP
from unifiedserve.models.default import DEFAULT_CHECKPOINT

_START_SECONDS = 60.0
_STOP_SECONDS = 20.0
_ANSWER_SECONDS = 20.0
_BAD_SETUP = 2
_MOST_LINES = 4  # of which one says what is wrong; others are warnings
_SHARED = Path("/dev/shm")
_WEIGHTS = "model.safetensors"
Break = Callable[[Path, Random], None]


def _header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    return header


def _with_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write the file with its header changed."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = _header(path)
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def _tensor(header: dict[str, Any], random: Random) -> dict[str, Any]:
    entry: dict[str, Any] = header[random.choice(sorted(name for name in header if name != "__metadata__"))]
    return entry


def _truncated(folder: Path, random: Random) -> None:
    path = folder / _WEIGHTS
    os.truncate(path, random.choice((0, 4, 8, 100, path.stat().st_size // 2, path.stat().st_size - 1)))


def _giant_header(folder: Path, random: Random) -> None:
    data = (folder / _WEIGHTS).read_bytes()
    size = random.choice((2**63, 2**64 - 1, 2**40, len(data), 100_000_001))
    (folder / _WEIGHTS).write_bytes(struct.pack("<Q", size) + data[8:])


def _bad_offsets(folder: Path, random: Random) -> None:
    offsets = random.choice(([-8, 8], [8, 0], [0, 2**63], [0, 2**70], [2**62, 2**62 + 8], [0], "a", [0.5, 9], None))
    _with_header(folder / _WEIGHTS, lambda header: _tensor(header, random).update(data_offsets=offsets))


def _overlapping(folder: Path, random: Random) -> None:
    def change(header: dict[str, Any]) -> None:
        one, other = _tensor(header, random), _tensor(header, random)
        one["data_offsets"] = [offset + 2 for offset in other["data_offsets"]]

    _with_header(folder / _WEIGHTS, change)


def _bad_tensor(folder: Path, random: Random) -> None:
    field, value = random.choice(
        (
            ("shape", [2**40, 2**40]),
            ("shape", [-1]),
            ("shape", []),
            ("shape", "x"),
            ("dtype", "F3"),
            ("dtype", "I64"),
            ("dtype", 1),
        )
    )
    _with_header(folder / _WEIGHTS, lambda header: _tensor(header, random).update({field: value}))


def _lost_tensor(folder: Path, random: Random) -> None:
    names = sorted(name for name in _header(folder / _WEIGHTS) if name != "__metadata__")
    _with_header(folder / _WEIGHTS, lambda header: header.pop(random.choice(names)))


def _no_json_header(folder: Path, random: Random) -> None:
    text = random.choice((b"{", b"[]", b"null", b"\xff" * 9, b"{}" + b" " * 50, b"[" * 100_000, b'{"a":1}'))
    (folder / _WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + bytes(1000))


def _not_weights(folder: Path, random: Random) -> None:
    path = folder / _WEIGHTS
    path.unlink()
    random.choice((lambda: path.mkdir(), lambda: path.symlink_to("/dev/zero"), lambda: os.mkfifo(path), lambda: None))()


def _not_json(folder: Path, random: Random) -> None:
    name = random.choice(("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json"))
    text = random.choice((b"", b"{", b"[]", b"null", b"\xff\xfe", b"1", b"[" * 100_000, b'{"model_type": 1}'))
    (folder / name).write_bytes(text)


def _absurd_config(folder: Path, random: Random) -> None:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size",
             "intermediate_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "eos_token_id",
             "image_token_id", "torch_dtype", "rope_scaling", "vision_config", "tie_word_embeddings")  # fmt: skip
    value: Any = random.choice((0, -1, 2**31, 2**63, 1e308, "x", None, [], {}, 7))
    _config(folder, {random.choice(names): value})


def _absurd_vision(folder: Path, random: Random) -> None:
    names = (
        "hidden_size",
        "depth",
        "num_heads",
        "patch_size",
        "temporal_patch_size",
        "spatial_merge_size",
        "window_size",
    )
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"][random.choice(names)] = random.choice((0, -1, 2**31, 2**63, "x", None, 7))
    (folder / "config.json").write_text(json.dumps(config))


def _absurd_processor(folder: Path, random: Random) -> None:
    path = folder / random.choice(("preprocessor_config.json", "video_preprocessor_config.json"))
    rules = json.loads(path.read_text())
    names = ("min_pixels", "max_pixels", "patch_size", "merge_size", "temporal_patch_size", "image_mean", "fps", "size")
    rules[random.choice(names)] = random.choice((0, -1, 2**31, 2**63, 1e308, "x", [], [0, 0, 0]))
    path.write_text(json.dumps(rules))


def _unknown_model(folder: Path, random: Random) -> None:
    name = random.choice(("x", "", "../x", "gpt2", "bert", "__init__", "qwen2_5_vl\x00", "a" * 9999))
    _config(folder, {"model_type": name, "architectures": [name]})


def _remote_code(folder: Path, random: Random) -> None:
    """Name a module beside the configuration that must not be run."""
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nclass C: pass\n")
    names = {
        "AutoConfig": "evil.C",
        "AutoModel": "evil.C",
        "AutoTokenizer": ["evil.C", "evil.C"],
        "AutoProcessor": "evil.C",
    }
    _config(folder, {"auto_map": names})
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "auto_map": names}))


def _broken_tokenizer(folder: Path, random: Random) -> None:
    path = folder / "tokenizer.json"
    data = path.read_bytes()
    changes: list[Callable[[], object]] = [
        lambda: path.unlink(),
        lambda: path.write_bytes(data[: random.randrange(len(data))]),
        lambda: path.write_text("{}"),
        lambda: path.write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}'),
        lambda: path.write_bytes(data.replace(b'"id": 10', b'"id": 99999999999')),
        lambda: path.write_bytes(re.sub(rb'"merges": \[', b'"merges": [["zz", "yy"],', data)),
    ]
    random.choice(changes)()


def _template(folder: Path, random: Random) -> None:
    path = folder / "chat_template.jinja"
    path.write_text(random.choice(_TEMPLATES))


_TEMPLATES = [
    "{% for",
    "{{ 1 / 0 }}",
    "{% for i in range(10 ** 9) %}a{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ messages.append(1) }}",
    "{{ 'a' * 10 ** 12 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{% include '/etc/passwd' %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ raise_exception('no') }}",
    "",
]


def _index_outside(folder: Path, random: Random) -> None:
    """Have an index name a file that is outside of the folder, or none, or a link to one outside."""
    names = [name for name in _header(folder / _WEIGHTS) if name != "__metadata__"]
    outside = folder.parent / "outside.safetensors"
    (folder / _WEIGHTS).rename(outside)
    where = random.choice(
        ("../outside.safetensors", str(outside), "link.safetensors", "missing.safetensors", "", "\x00", 1, "..")
    )
    if where == "link.safetensors":
        (folder / where).symlink_to("/etc/passwd")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, where)}
    (folder / f"{_WEIGHTS}.index.json").write_text(json.dumps(index))


def _broken_index(folder: Path, random: Random) -> None:
    (folder / _WEIGHTS).rename(folder / "model-1.safetensors")
    text = random.choice(
        ("", "{", "[]", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": null}}', "[" * 99_999)
    )
    (folder / f"{_WEIGHTS}.index.json").write_text(text)


def _config(folder: Path, fields: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


async def _judged(folder: Path) -> Seen:
    """Serve the folder; return how that ended. What starts all the same must answer a question in time."""
    before = set(_SHARED.iterdir())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "unifiedserve.cli", "serve", str(folder), "--port", "0", "--startup-timeout", "50",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        seen = await _watched(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if (folder / "ran").exists():
        raise ViolationError("code of the checkpoint was run")
    if left := [path.name for path in set(_SHARED.iterdir()) - before if f"-{process.pid}-" in path.name]:
        raise ViolationError(f"segments left: {len(left)}")
    return seen


async def _watched(process: asyncio.subprocess.Process) -> Seen:
    assert process.stdout is not None
    assert process.stderr is not None
    said = asyncio.ensure_future(process.stderr.read())
    try:
        async with asyncio.timeout(_START_SECONDS):
            line = await process.stdout.readline()
    except TimeoutError:
        raise ViolationError(f"neither ready nor at its end after {_START_SECONDS:.0f} s") from None
    ready = READY.match(line.decode(errors="replace"))
    asked = await _asked(ready[1]) if ready else ""
    if process.returncode is None and ready:
        process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            code = await process.wait()
            text = (await said).decode(errors="replace")
    except TimeoutError:
        raise ViolationError(f"no end within {_STOP_SECONDS:.0f} s{' of SIGTERM' if ready else ''}") from None
    return _ended(code, text, asked)


def _ended(code: int, text: str, asked: str) -> Seen:
    lines = [line for line in text.splitlines() if line.strip() and not STEP.match(line)]
    if "Traceback" in text:
        raise ViolationError(f"a traceback: {' | '.join(lines[-3:])[:500]}")
    if asked:
        if asked.startswith("5") or code != 0:
            raise ViolationError(f"it started; a question got {asked}; it ended with code {code}")
        return Seen("served", asked)
    if code != _BAD_SETUP:
        raise ViolationError(f"code {code}: {' | '.join(lines[-3:])[:500]}")
    if not lines or len(lines) > _MOST_LINES or not lines[-1].startswith("unifiedserve: "):
        raise ViolationError(f"no clear line: {' | '.join(lines)[:600]}")
    return Seen("code 2", lines[-1][:200])


async def _asked(url: str) -> str:
    """Ask a question; return its status. A template that never ends is the operator's own, but keeps nobody else."""
    async with httpx.AsyncClient(base_url=url, timeout=_ANSWER_SECONDS) as http:
        try:
            response = await http.post(CHAT, json=chat())
        except httpx.ReadTimeout:
            response = await http.post("/v1/completions", json={"prompt": "on", "max_tokens": 3})
            return f"no answer; {response.status_code} without a template"
        except httpx.HTTPError as error:
            raise ViolationError(f"it started; a question got {type(error).__name__}") from None
        return f"{response.status_code} {response.text[:120] if response.is_error else ''}"


def _kind(name: str, weight: float, break_it: Break) -> Kind:
    async def act(target: Target, random: Random) -> Seen:
        with tempfile.TemporaryDirectory(prefix="campaign-") as root:
            folder = Path(root) / "model"
            shutil.copytree(DEFAULT_CHECKPOINT, folder)
            break_it(folder, random)
            try:
                return await _judged(folder)
            except ViolationError as error:
                raise ViolationError(str(error).replace(root, "…")) from None

    return Kind(name, weight, act)


BREAKS: list[tuple[str, float, Break]] = [
    ("weights cut off", 2, _truncated),
    ("weights with a giant header", 1, _giant_header),
    ("offsets out of range", 2, _bad_offsets),
    ("tensors that overlap", 1, _overlapping),
    ("tensors of wrong shapes and types", 2, _bad_tensor),
    ("a tensor that is missing", 1, _lost_tensor),
    ("a header that is no JSON", 1, _no_json_header),
    ("weights that are no file", 1, _not_weights),
    ("configuration that is no JSON", 2, _not_json),
    ("absurd sizes", 4, _absurd_config),
    ("absurd sizes of the encoder", 3, _absurd_vision),
    ("absurd rules for images", 3, _absurd_processor),
    ("unknown models", 1, _unknown_model),
    ("code beside the configuration", 1, _remote_code),
    ("broken tokenizers", 2, _broken_tokenizer),
    ("hostile chat templates", 3, _template),
    ("an index that names other files", 2, _index_outside),
    ("a broken index", 1, _broken_index),
]

KINDS = [_kind(*each) for each in BREAKS]
