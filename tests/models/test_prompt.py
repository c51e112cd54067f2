"""Prompts: token ids and positions equal transformers'; what users write cannot act as control tokens."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import pixels, user
from generation_cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from model_loop import plans
from reference import Case, Reference
from tokenizers import Tokenizer, models, pre_tokenizers

from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.chat import ChatTemplate
from unifiedserve.models.checkpoint_files import CHAT_TEMPLATE, SPECIAL_TOKENS
from unifiedserve.models.processor import MediaOptions, Processor, PromptError, VideoInfo
from unifiedserve.models.registry import load_processor
from unifiedserve.models.tiny import make_checkpoint

IMAGE = MediaOptions()
tricky_text = st.lists(
    st.sampled_from(
        [*SPECIAL_TOKENS, "<|im_start|>assistant\n", "<tool_call>", "\ufdd0", "<|im", "_end|>", " a bird", "é"]
    )
    | st.text(max_size=6)
).map("".join)


@pytest.mark.parametrize("name", CASES)
def test_tokens_and_positions(name: str, ours: Processor, hf: Reference, adapter: LanguageAdapter) -> None:
    inputs = hf.inputs(CASES[name])
    prompt = ours.prompt(CASES[name].messages, plans(ours, CASES[name]))
    assert prompt.token_ids == inputs["input_ids"][0].tolist()
    positions = adapter.positions(prompt.token_ids, prompt.media)
    assert positions.shape == (3, len(prompt.token_ids))
    if prompt.media:
        expected, _ = hf.model.model.get_rope_index(**inputs)
        assert torch.equal(positions, expected[:, 0])
    else:
        assert torch.equal(positions, torch.arange(len(prompt.token_ids)).expand(3, -1))


def test_every_token_is_spoken_for(ours: Processor) -> None:
    media = [
        ours.plan_image(640, 480, IMAGE),
        ours.plan_video(VideoInfo(300, 30.0, 10.0, 320, 240), IMAGE),
        ours.plan_image(50, 50, IMAGE),
    ]
    prompt = ours.prompt([user("image", "between", "video", "image")], media)
    assert prompt.media == media
    count = {kind: prompt.token_ids.count(token) for kind, token in ours.visual_ids.items()}
    assert count == {"image": media[0].tokens + media[2].tokens, "video": media[1].tokens}


@pytest.mark.parametrize(
    ("parts", "media", "message"),
    [
        (["image"], [], "1 image, but no media"),
        (["text only"], ["image"], "no media, but 1 image"),
        (["image", "image"], ["image"], "2 images, but 1 image"),
        (["image", "video"], ["image", "image"], r"2 media \(image, video\), but 2 images"),
    ],
)
def test_placeholders_must_be_the_media(parts: list[str], media: list[str], message: str, ours: Processor) -> None:
    plan = {
        "image": ours.plan_image(64, 64, IMAGE),
        "video": ours.plan_video(VideoInfo(8, 8.0, 1.0, 64, 64), IMAGE),
    }
    with pytest.raises(PromptError, match=message):
        ours.prompt([user(*parts)], [plan[kind] for kind in media])


def test_a_template_may_put_media_in_another_order(tmp_path: Path) -> None:
    """As llava-hf's do: images before videos. Each placeholder is the next medium of its kind, as in transformers."""
    parts = "{% for part in messages[0].content if part.type == 'KIND' %}<|KIND_pad|>{% endfor %}"
    template = "".join(parts.replace("KIND", kind) for kind in ("image", "video"))
    processor = load_processor(make_checkpoint(tmp_path), template)
    small, large = (processor.plan_image(side, side, IMAGE) for side in (64, 128))
    video = processor.plan_video(VideoInfo(8, 8.0, 1.0, 64, 64), IMAGE)
    prompt = processor.prompt([user("video", "image", "image")], [video, large, small])
    assert prompt.media == [large, small, video]
    assert prompt.order == [1, 2, 0]
    image_id, video_id = processor.visual_ids["image"], processor.visual_ids["video"]
    assert prompt.token_ids == [image_id] * (large.tokens + small.tokens) + [video_id] * video.tokens
    compact = [image_id, image_id, video_id]
    assert processor.prompt_from_tokens(compact, [video, large, small]) == prompt


@given(text=tricky_text)
def test_user_text_is_only_text(text: str, ours: Processor) -> None:
    """Whatever the text, the control tokens of the prompt are the template's, and the text is all there."""
    special = set(ours.chat.special_ids.values())
    plan = ours.plan_image(64, 64, IMAGE)
    prompt = ours.prompt([user("image", text)], [plan])
    harmless = ours.prompt([user("image", "harmless")], [plan])
    assert [t for t in prompt.token_ids if t in special] == [t for t in harmless.token_ids if t in special]
    template = ours.tokenizer.decode(harmless.token_ids)
    normalised = ours.tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    assert ours.tokenizer.decode(prompt.token_ids) == template.replace("harmless", normalised)


@given(text=tricky_text)
def test_user_text_as_transformers_sanitises_it(text: str, ours: Processor) -> None:
    render = ours.tokenizer.apply_chat_template
    if "sanitize_control_tokens" not in inspect.signature(render).parameters:
        pytest.skip("this transformers does not sanitise")
    messages = [{"role": "user", "content": text}]
    if "<tool_call>" in text:
        return  # not a control token of Qwen2.5-VL's vocabulary: the model may read it as its own
    expected = render(messages, add_generation_prompt=True, sanitize_control_tokens=True, return_dict=False)
    assert ours.prompt(messages, []).token_ids == expected


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_text_of_a_special_token_changes_no_other_token(scheme: str, tmp_path: Path) -> None:
    """Tokenizers like Llama 2's put a space before a prompt's first word, some of them behind special tokens, too."""
    letters = ["<unk>", "<s>", "</s>", "▁", "\n", *"<>/abis"]
    made = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, [], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    made.add_special_tokens(letters[:3])
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    chat = ChatTemplate(tmp_path, "{{ messages[0].role }}<s>{{ messages[0].content }}</s>ab")
    ids = chat.encode([{"role": "b", "content": "is </s> bias"}])
    first, other = "" if scheme == "never" else "▁", "▁" if scheme == "always" else ""
    text = [*f"{first}b", "<s>", *f"{other}is▁</s>▁bias", "</s>", *f"{other}ab"]
    assert chat.tokenizer.convert_ids_to_tokens(ids) == text


def test_no_part_of_a_request_can_write_control_tokens(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "template")
    template = CHAT_TEMPLATE + "{{ tools[0].function.name }}{{ extra.note }}"
    processor = load_processor(directory, template)
    tool = {"type": "function", "function": {"name": "<|im_end|>"}}
    prompt = processor.prompt(
        [{"role": "<|im_start|>", "content": "x"}], [], tools=[tool], extra={"note": ["<|image_pad|>"]}
    )
    ids = processor.chat.special_ids
    assert [t for t in prompt.token_ids if t in ids.values()] == [
        ids[token] for token in ("<|im_start|>", "<|im_end|>") * 2 + ("<|im_start|>",)
    ]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "audio"}, "type 'audio'"),
        ({"type": "text"}, "string 'text'"),
        ({"type": "text", "text": 5}, "string 'text'"),
        ({"image": "x"}, "type None"),
        ("text", "must be an object"),
    ],
)
def test_bad_parts(part: Any, message: str, ours: Processor) -> None:
    with pytest.raises(PromptError, match=message):
        ours.prompt([{"role": "user", "content": [part]}], [])


def test_template_errors(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "bad")
    refusing = load_processor(directory, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(PromptError, match="roles must alternate"):
        refusing.prompt([user("x")], [])
    (directory / "chat_template.jinja").unlink()
    with pytest.raises(PromptError, match="--chat-template"):
        load_processor(directory).prompt([user("x")], [])


def test_older_checkpoints_keep_the_template_in_json(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "old")
    (directory / "chat_template.jinja").unlink()
    (directory / "chat_template.json").write_text('{"chat_template": "{{ messages[0].content }}!"}')
    processor = load_processor(directory)
    prompt = processor.prompt([{"role": "user", "content": "a bird"}], [])
    assert processor.tokenizer.decode(prompt.token_ids) == "a bird!"
    (directory / "processor_config.json").write_text('{"chat_template": "{{ messages[0].content }}?"}')
    prompt = load_processor(directory).prompt([{"role": "user", "content": "a bird"}], [])
    assert processor.tokenizer.decode(prompt.token_ids) == "a bird?"


def test_named_templates(tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "named")
    (directory / "chat_template.jinja").unlink()
    written = directory / "tokenizer_config.json"
    templates = [
        {"name": "default", "template": "{{ messages[0].content }}!"},
        {"name": "tool_use", "template": "{{ messages[0].content }}, {{ tools[0].name }}?"},
    ]
    written.write_text(json.dumps({**json.loads(written.read_text()), "chat_template": templates}))
    processor = load_processor(directory)
    messages = [{"role": "user", "content": "a bird"}]
    for tools, text in ((None, "a bird!"), ([], "a bird!"), ([{"name": "fly"}], "a bird, fly?")):
        assert processor.tokenizer.decode(processor.prompt(messages, [], tools=tools).token_ids) == text


def test_prompt_from_tokens(ours: Processor) -> None:
    plan = ours.plan_image(64, 64, IMAGE)
    image = ours.visual_ids["image"]
    assert ours.prompt_from_tokens([5, image, 6], [plan]).token_ids == [5, *[image] * plan.tokens, 6]
    with pytest.raises(PromptError, match="empty"):
        ours.prompt_from_tokens([], [])
    for token in (-1, ours.vocab_size):
        with pytest.raises(PromptError, match="not in the vocabulary"):
            ours.prompt_from_tokens([1, token], [])


def test_next_position_counts_on(ours: Processor, adapter: LanguageAdapter) -> None:
    """As `generate`: from the last token on, not from the largest position before it."""
    case = Case([user("video", "Well?")], videos=[pixels(1, 64, 72, 128)], fps=0.7)
    prompt = ours.prompt(case.messages, plans(ours, case))
    positions = adapter.positions(prompt.token_ids, prompt.media)
    assert positions.max() > positions[:, -1].max()
    n = len(prompt.token_ids)
    assert n + adapter.next_position(positions) == positions[0, -1] + 1


def test_facts_about_the_model(ours: Processor) -> None:
    names = ("<|im_end|>", "<|endoftext|>")
    assert ours.eos_token_ids == tuple(ours.chat.special_ids[name] for name in names)
    assert (ours.patch_row_bytes, ours.visual_dim) == (3 * 2 * 14 * 14, 192)
    assert ours.context_length == 32768
