"""Define the side of a model family for the API process: prompts and media."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from unifiedserve.memory.recurrent_state import StateLayout
from unifiedserve.messages.media import (
    ALL_FRAMES,
    ExpandedPrompt,
    MediaKind,
    MediaOptions,
    MediaPlan,
    PromptError,
    VideoInfo,
)
from unifiedserve.models.chat import ChatTemplate
from unifiedserve.models.context_length import context_length, short_length
from unifiedserve.models.ends import end_tokens
from unifiedserve.models.pooling import load_pooling
from unifiedserve.models.text import NO_LIMIT, TooLongError

__all__ = [
    "ALL_FRAMES",
    "ExpandedPrompt",
    "MediaKind",
    "MediaOptions",
    "MediaPlan",
    "Processor",
    "PromptError",
    "VideoInfo",
]


class Processor:
    """Process prompts and media of one checkpoint, by its own rules; needs no weights."""

    #: what the chat template renders for a medium; none for a model that takes no such media
    placeholders: Mapping[MediaKind, str] = {}
    #: the token that stands for each visual token of a medium
    visual_ids: Mapping[MediaKind, int] = {}
    #: bytes of a row of the patch buffer, and elements of one visual token
    patch_row_bytes: int = 1
    visual_dim: int = 1
    #: see `LanguageAdapter`
    keeps_visual_rows: ClassVar[bool] = False

    def __init__(self, model_dir: Path, config: Any, chat_template: str | None = None) -> None:
        text_config = config.get_text_config()
        self.config = config
        self.chat = ChatTemplate(model_dir, chat_template)
        self.tokenizer: Any = self.chat.tokenizer
        self.vocab_size: int = text_config.vocab_size
        self.context_length = context_length(text_config)
        #: whether what the first tokens of a prompt leave in the KV cache is the same in all prompts that begin so
        self.shares_prefixes = StateLayout.of(text_config) is None and short_length(text_config) is None
        self.pooling = load_pooling(model_dir)  # None for a model that generates text
        self.eos_token_ids: tuple[int, ...] = end_tokens(model_dir, self.tokenizer)
        self._opening: list[int] = [] if config is text_config else _opening(self.tokenizer)

    def plan_image(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        """Plan an image; raises PromptError for a size or an option that the model cannot take."""
        self.check_options("image", options)
        return self.image_plan(width, height, options)

    def plan_video(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        """Plan a video; raises PromptError for a video or an option that the model cannot take."""
        self.check_options("video", options)
        if video.num_frames < 1:
            raise PromptError("the video has no frames")
        return self.video_plan(video, options)

    def together(self, plans: Sequence[MediaPlan]) -> list[MediaPlan]:
        """Return how media are looked at in one conversation; some families look at one among others differently."""
        return list(plans)

    def check_options(self, kind: MediaKind, options: MediaOptions) -> None:
        """Raise PromptError for options that such media cannot have."""
        options.check(kind)

    def image_plan(self, width: int, height: int, options: MediaOptions) -> MediaPlan:
        """Plan an image with options that were checked."""
        raise PromptError("this model does not take images", "messages")

    def video_plan(self, video: VideoInfo, options: MediaOptions) -> MediaPlan:
        """Plan a video of at least one frame with options that were checked."""
        raise PromptError("this model does not take videos", "messages")

    def media_text(self, plan: MediaPlan) -> str:
        """Return the text that replaces a medium's placeholder. It has one visual token for each of its `runs`."""
        return self.placeholders[plan.kind]

    def media_texts(self, media: Sequence[MediaPlan]) -> Sequence[str]:
        """Return the `media_text` of each medium; in some families it depends on the prompt's other media."""
        return [self.media_text(plan) for plan in media]

    def runs(self, plan: MediaPlan) -> Sequence[int]:
        """Return how many visual tokens each one in `media_text` stands for."""
        return [plan.tokens]

    def template_for(self, media: Sequence[MediaPlan]) -> ChatTemplate:
        """Return the chat template of a conversation with these media."""
        return self.chat

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        media: Sequence[MediaPlan],
        limit: int = NO_LIMIT,
        /,
        **template_kwargs: Any,
    ) -> ExpandedPrompt:
        """Render, tokenise and expand the placeholders: the i-th of a kind is the i-th medium of that kind.

        A message's content is a string or a list of {"type": "text", "text": …}, {"type": "image"} and
        {"type": "video"}. Special tokens written in any text count as plain text. Raises PromptError if the
        placeholders are not exactly the media, or the template refuses the messages, and TooLongError for more than
        `limit` tokens, before they are made.
        """
        self._check_runs(media, limit)
        _check_parts(messages)
        kinds = {placeholder: kind for kind, placeholder in self.placeholders.items()}
        pattern = re.compile("|".join(map(re.escape, kinds)) or r"(?!)")
        order: list[int] = []

        def with_media(text: str) -> str:
            order.extend(_order([kinds[match[0]] for match in pattern.finditer(text)], media))
            texts = iter(self.media_texts([media[i] for i in order]))
            return pattern.sub(lambda match: next(texts), text)

        token_ids = self.template_for(media).encode(messages, with_media, limit, kinds, **template_kwargs)
        opening = [] if token_ids[:1] == self._opening else self._opening
        return self._expanded(opening + token_ids, media, order, limit)

    def prompt_from_tokens(
        self, token_ids: Sequence[int], media: Sequence[MediaPlan], limit: int = NO_LIMIT
    ) -> ExpandedPrompt:
        """Expand token ids with one placeholder a medium; raises PromptError and TooLongError as `prompt` does."""
        self._check_runs(media, limit)
        visual = set(self.visual_ids.values())
        for token in token_ids:
            if not (0 <= token < self.vocab_size or token in visual):
                raise PromptError(f"token {token} is not in the vocabulary of {self.vocab_size}")
        pieces = self._split(token_ids)
        order = _order([piece for piece in pieces if not isinstance(piece, int)], media)
        texts = iter(self.media_texts([media[i] for i in order]))
        with_media: list[int] = []
        for piece in pieces:
            with_media += [piece] if isinstance(piece, int) else self.chat.text.encode(next(texts))
        return self._expanded(with_media, media, order, limit)

    def _split(self, token_ids: Sequence[int]) -> list[int | MediaKind]:
        """Return the tokens, with kinds of media in place of placeholders."""
        patterns = {kind: self.chat.text.encode(text) for kind, text in self.placeholders.items()}
        pieces: list[int | MediaKind] = []
        i = 0
        while i < len(token_ids):
            kind = next((k for k, ids in patterns.items() if list(token_ids[i : i + len(ids)]) == ids), None)
            pieces.append(token_ids[i] if kind is None else kind)
            i += 1 if kind is None else len(patterns[kind])
        return pieces

    def _check_runs(self, media: Sequence[MediaPlan], limit: int) -> None:
        """Raise TooLongError for media of too many parts. Their text alone would have more than `limit` tokens."""
        if (runs := sum(len(self.runs(plan)) for plan in media)) > limit:
            raise TooLongError(runs)

    def _expanded(
        self, token_ids: Sequence[int], media: Sequence[MediaPlan], order: list[int], limit: int
    ) -> ExpandedPrompt:
        """Repeat each visual token for its run."""
        media = [media[i] for i in order]
        visual = set(self.visual_ids.values())
        runs = [run for plan in media for run in self.runs(plan)]
        if (tokens := len(token_ids) - len(runs) + sum(runs)) > limit:
            raise TooLongError(tokens, counted=True)
        left = iter(runs)
        expanded: list[int] = []
        for token in token_ids:
            expanded += [token] * next(left, 1) if token in visual else [token]
        if not expanded:
            raise PromptError("the prompt is empty")
        if sum(token in visual for token in expanded) != sum(runs):
            raise PromptError("the prompt has visual tokens that belong to no medium")
        return ExpandedPrompt(expanded, media, order)


def _opening(tokenizer: Any) -> list[int]:
    """Return the token that the tokenizer opens texts with: many multimodal models' templates leave it out."""
    ids: list[int] = tokenizer("")["input_ids"]
    return ids[:1] if ids[:1] == [tokenizer.bos_token_id] else []


def _check_parts(messages: Sequence[Mapping[str, Any]]) -> None:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if not isinstance(part, Mapping):
                raise PromptError(f"a content part must be an object, got {part!r}", "messages")
            kind = part.get("type")
            if kind not in ("text", "image", "video"):
                raise PromptError(f"a content part of type {kind!r} is not supported", "messages")
            if kind == "text" and not isinstance(part.get("text"), str):
                raise PromptError("a content part of type 'text' needs a string 'text'", "messages")


def _order(found: Sequence[MediaKind], media: Sequence[MediaPlan]) -> list[int]:
    """Return which of `media` each placeholder, given by kind, stands for."""
    given = [plan.kind for plan in media]
    if sorted(found) != sorted(given):
        raise PromptError(f"the prompt has places for {_count(found)}, but {_count(given)} came with it")
    numbers = {kind: iter([i for i, each in enumerate(given) if each == kind]) for kind in given}
    return [next(numbers[kind]) for kind in found]


def _count(kinds: Sequence[MediaKind]) -> str:
    if not kinds:
        return "no media"
    if len(set(kinds)) == 1:
        return f"{len(kinds)} {kinds[0]}{'s' if len(kinds) > 1 else ''}"
    return f"{len(kinds)} media ({', '.join(kinds)})"
