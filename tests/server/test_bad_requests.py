"""Requests that must be refused: always a 4xx with OpenAI's error object, never reaching the engine."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import check_refused, error_of
from scripted import ScriptedEngine
from scripted_app import connected, question

from unifiedserve.server.chat.request import ChatRequest
from unifiedserve.server.completions.request import CompletionRequest
from unifiedserve.server.requests.parse import fields_of
from unifiedserve.server.tokens.request import TokenizeRequest

PATH = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


def with_part(part: dict[str, Any]) -> dict[str, Any]:
    return question([part])


def nested(levels: int) -> dict[str, Any]:
    """`levels` containers in each other, objects and arrays in turn."""
    value: Any = "<|im_start|>"
    for level in reversed(range(levels)):
        value = [value] if level % 2 else {"a": value}
    return dict(value)


BAD = [
    ({}, "messages", "missing"),
    ({"messages": []}, "messages", "length >= 1"),
    ({"messages": "hi"}, "messages", "array"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "robot"),
    (
        {"messages": [{"role": "robot", "content": ""}]},
        "messages[0].role",
        "'robot' is none of the allowed values, 'assistant', 'developer', 'system', 'tool', 'user'.",
    ),
    (with_part({"type": "audio_url"}), "messages[0].content[0].type", "'audio_url' is none of the allowed values, '"),
    (
        with_part({"type": "file", "file": {"file_id": "https://example.com/a.mp4"}}),
        "messages[0].content[0].file.file_id",
        "expected the id of an uploaded file, which begins with file- (see POST /v1/files).",
    ),
    (
        with_part({"type": "video_url", "video_url": {"url": "f-1"}}),
        "messages[0].content[0].video_url.url",
        "with file-",
    ),
    (
        question(tool_choice="maybe"),
        "tool_choice",
        "'maybe' is none of the allowed values, 'auto', 'none', 'required'.",
    ),
    (with_part({"type": "text"}), "messages[0].content[0].text", "missing"),
    (with_part({"type": "video_url", "video_url": None, "uuid": "u"}), "messages[0].content[0].video_url", "uuid"),
    (with_part({"type": "video_url", "video_ulr": {}}), "messages[0].content[0].video_ulr", "`video_url`"),
    (question(temperature=-1), "temperature", ">= 0"),
    (question(temperature="hot"), "temperature", "str"),
    (question(top_p=-0.1), "top_p", ">= 0"),
    (question(reasoning_effort="low"), "reasoning_effort", "'none'"),
    (
        question(mm_processor_kwargs={"do_sample_frames": False}),
        "mm_processor_kwargs.do_sample_frames",
        "not supported",
    ),
    (question(documents=[{}]), "documents", "not supported"),
    (question(stream=True, return_media_usage=True), "return_media_usage", "`stream_options.include_usage`"),
    (
        with_part({"type": "video", "video": ["data:,"], "fps": 2, "sample_fps": 3}),
        "messages[0].content[0].sample_fps",
        "`fps`",
    ),
    (question(n=0), "n", ">= 1"),
    (question(max_tokens=0), "max_tokens", ">= 1"),
    (question(seed=2**64), "seed", "int"),
    (question(stop=[1]), "stop[0]", "str"),
    (question(stop=""), "stop", "empty"),
    (question(temprature=1), "temprature", "`temperature`"),
    (question(fps=2), "fps", "`media_io_kwargs.video.fps`"),
    ({"input": "hi"}, "input", "`messages`"),
    (question(num_frames=2), "num_frames", "`mm_processor_kwargs.num_frames`"),
    (question(max_pixels=2), "max_pixels", "`mm_processor_kwargs.max_pixels`"),
    (question(media_io_kwargs={"fps": 2}), "media_io_kwargs.fps", "`media_io_kwargs.video.fps`"),
    (question(extra_body={"top_k": 3}), "extra_body", "top level"),
    (question(qwertz=1), "qwertz", "Unknown"),
    ({"messages": [{"role": "user", "content": "a", "audios": []}]}, "messages[0].audios", "`audio`"),
    ({"messages": [{"role": "user", "content": "a", "vide": []}]}, "messages[0].vide", "field `messages[0].vide`."),
    (
        question(response_format={"type": "xml"}),
        "response_format.type",
        "'xml' is none of the allowed values, 'text', 'json_object', 'json_schema'.",
    ),
    (question(response_format={"type": "json_schema"}), "response_format.json_schema", "missing"),
    (question(structured_outputs={}), "structured_outputs", "one of"),
    (question(structured_outputs={"structural_tag": "x"}), "structured_outputs.structural_tag", "Unknown"),
    (question(structured_outputs={"regex": "a", "choice": ["b"]}), "structured_outputs.choice", "both"),
    (question(guided_json={}, response_format={"type": "json_object"}), "guided_json", "both"),
    (question(guided_json="{"), "guided_json", "JSON"),
    (question(guided_json=3), "guided_json", "object"),
    (question(guided_choice=[]), "guided_choice", "length"),
    (question(guided_regex="a" * 300_000), "guided_regex", "longer"),
    (question(guided_regex="a", ignore_eos=True), "ignore_eos", "guided_regex"),
    (question(logit_bias={"5": 101}), "logit_bias[...]", "<= 100"),
    (question(logit_bias={"five": 1}), "logit_bias", "five"),
    (question(logit_bias={str(token): 1 for token in range(1025)}), "logit_bias", "1024"),
    (question(top_logprobs=21, logprobs=True), "top_logprobs", "<= 20"),
    (question(prompt_logprobs=21), "prompt_logprobs", "<= 20"),
    (question(prompt_logprobs=1, stream=True), "prompt_logprobs", "`stream`"),
    (question(deadline=0), "deadline", "> 0"),
    (question(slo_ttft=-1), "slo_ttft", "> 0"),
    (question(priority=0.5), "priority", "int"),
    (question(echo=True), "echo", "not supported"),
    (
        question(continue_final_message=True, add_generation_prompt=True),
        "continue_final_message",
        "`add_generation_prompt`",
    ),
    (question(max_tokens=5, max_completion_tokens=6), "max_tokens", "differ"),
    (question(max_tokens=5, min_tokens=6), "min_tokens", "max_tokens"),
    (question(stream_options={"include_usage": True}), "stream_options", "`stream`"),
    (question(top_logprobs=3), "top_logprobs", "`logprobs`"),
    (question(chat_template_kwargs={"chat_template": "{{ 1 }}"}), "chat_template_kwargs.chat_template", "must not"),
    (question(chat_template_kwargs={"self": 1}), "chat_template_kwargs.self", "must not"),
    (question(chat_template_kwargs={"conversations": []}), "chat_template_kwargs.conversations", "must not"),
    (question(chat_template_kwargs=nested(33)), "chat_template_kwargs", "deeper than 32"),
    (question(chat_template_kwargs=nested(100)), "chat_template_kwargs", "deeper than 32"),
    (question(media_io_kwargs={"video": {"fps": 0}}), "media_io_kwargs.video.fps", "> 0"),
    (question(media_io_kwargs={"video": {"fps": 1, "num_frames": 8}}), "media_io_kwargs.video.fps", "exclude"),
    (question(mm_processor_kwargs={"fps": 1, "num_frames": 8}), "mm_processor_kwargs.fps", "exclude"),
    (question(media_io_kwargs={"video": {"num_frames": 0}}), "media_io_kwargs.video.num_frames", "at least 1"),
    (
        question(media_io_kwargs={"video": {"num_frames": 9, "max_frames": 8}}),
        "media_io_kwargs.video.num_frames",
        "max_frames",
    ),
    (
        question(media_io_kwargs={"video": {"fps": 1}}, mm_processor_kwargs={"fps": 2}),
        "media_io_kwargs.video.fps",
        "mm_processor_kwargs",
    ),
    (
        question(mm_processor_kwargs={"min_pixels": 9, "max_pixels": 8}),
        "mm_processor_kwargs.min_pixels",
        "max_pixels",
    ),
]


@pytest.mark.parametrize(("body", "param", "hint"), BAD)
async def test_field_and_reason_are_named(
    client: httpx.AsyncClient, engine: ScriptedEngine, body: dict[str, Any], param: str, hint: str
) -> None:
    await check_refused(client, engine, PATH, body, param, hint)


async def test_template_options_reach_the_engine(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    response = await client.post(PATH, json=question(chat_template_kwargs=nested(32)))
    assert response.status_code == 200
    assert engine.requests[0].template == {"add_generation_prompt": True, **nested(32)}


BAD_TEXT = [
    ({}, "prompt", "missing"),
    ({"prompt": []}, "prompt", "length >= 1"),
    ({"prompt": {}}, "prompt", "object"),
    ({"prompt": ["a", 1]}, "prompt", "mix"),
    ({"prompt": ["a"] * 257}, "prompt", "256"),
    ({"prompt": [-1]}, "prompt[0]", ">= 0"),
    ({"prompt": "a", "messages": []}, "messages", "Unknown"),
    ({"prompt": "a", "max_completion_tokens": 3}, "max_completion_tokens", "Unknown"),
    ({"prompt": "a", "logprobs": 21}, "logprobs", "<= 20"),
    ({"prompt": "a", "logprobs": True}, "logprobs", "bool"),
    ({"prompt": "a", "n": 3, "best_of": 2}, "best_of", "at least `n`"),
    ({"prompt": "a", "best_of": 2, "stream": True}, "best_of", "`stream`"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", "`echo`"),
    ({"prompt": "a", "prompt_logprobs": -1}, "prompt_logprobs", ">= 0"),
    ({"prompt": "a", "prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "`stream`"),
    ({"prompt": "a", "suffix": "b"}, "suffix", "not supported"),
    ({"prompt": "a", "guided_regex": "b", "guided_choice": ["c"]}, "guided_choice", "both"),
]


@pytest.mark.parametrize(("body", "param", "hint"), BAD_TEXT)
async def test_field_and_reason_are_named_for_texts(
    client: httpx.AsyncClient, engine: ScriptedEngine, body: dict[str, Any], param: str, hint: str
) -> None:
    await check_refused(client, engine, "/v1/completions", body, param, hint)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"messages": 1e999}', b'{"messages": NaN}']
)
@pytest.mark.parametrize("path", [PATH, "/tokenize", "/detokenize"])
async def test_malformed_json(client: httpx.AsyncClient, path: str, body: bytes) -> None:
    response = await client.post(path, content=body, headers=JSON)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"


@pytest.mark.parametrize("body", [b"", b" \n"])
async def test_an_empty_body_is_called_empty(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post(PATH, content=body, headers=JSON)
    assert error_of(response)["message"] == "The body is empty; it must be a JSON object."


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_body_must_be_labelled_json(client: httpx.AsyncClient, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    response = await client.post(PATH, content=json.dumps(question()).encode(), headers=headers)
    assert response.status_code == 415
    assert "application/json" in error_of(response)["message"]


@pytest.mark.parametrize("announced", [True, False])
async def test_body_too_large(announced: bool) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * (1 << 17)

    content = b" " * (5 << 20) if announced else pieces()
    async with connected(ScriptedEngine(max_body_mib=1)) as client:
        response = await client.post(PATH, content=content, headers=JSON)
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"


async def test_unknown_model(client: httpx.AsyncClient, engine: ScriptedEngine) -> None:
    for path, body in [
        (PATH, question(model="gpt-4")),
        ("/tokenize", {"prompt": "a", "model": "gpt-4"}),
        ("/detokenize", {"tokens": [], "model": "gpt-4"}),
    ]:
        response = await client.post(path, json=body)
        assert response.status_code == 404
        error = error_of(response)
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "gpt-4" in error["message"]
        assert engine.model_name in error["message"]


async def test_unknown_route_and_wrong_method(client: httpx.AsyncClient) -> None:
    missing = await client.get("/v1/nothing")
    assert missing.status_code == 404
    assert "/v1/nothing" in error_of(missing)["message"]
    wrong = await client.get(PATH)
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert error_of(wrong)["type"] == "invalid_request_error"
    assert error_of(wrong)["message"].endswith("this path takes POST.")


FIELDS = {
    field.rpartition(".")[2]
    for struct in (ChatRequest, CompletionRequest, TokenizeRequest)
    for field in fields_of(struct)
}
NAMES = st.sampled_from(sorted(FIELDS | {"type", "tools", "response_format", "assistant"})) | st.text(max_size=5)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES
    | st.sampled_from(["data:;base64,", "data:image/png;base64,AA==", "file:///etc/passwd", "ftp://x", "http://[", ""])
)  # fmt: skip
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(extra=st.dictionaries(NAMES, VALUES, max_size=4), messages=VALUES | st.just([{"role": "user", "content": "x"}]))
@pytest.mark.parametrize("path", [PATH, "/v1/completions", "/tokenize", "/detokenize"])
async def test_no_body_is_a_server_error(
    client: httpx.AsyncClient, path: str, extra: dict[str, Any], messages: Any
) -> None:
    response = await client.post(path, json={"messages": messages, "prompt": messages, **extra})
    assert response.status_code in (200, 400, 404)
    if response.status_code != 200:
        error_of(response)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
async def test_no_bytes_are_a_server_error(client: httpx.AsyncClient, data: bytes) -> None:
    response = await client.post(PATH, content=data, headers=JSON)
    assert response.status_code == 400
    error_of(response)
