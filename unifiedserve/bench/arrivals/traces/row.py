"""Describe a request as a trace knows it."""

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a request's time, in seconds after the start of the trace, and its shape.

    `input_tokens` are those of its text and its images together. `image_tokens` are the visual tokens of each image
    where the trace has them. `blocks` name its prompt's blocks of 512 tokens: two prompts whose first n ids are equal
    begin with the same 512 n tokens. `line` is where it stands in the file, from 1.
    """

    at: float
    input_tokens: int
    output_tokens: int
    images: int = 0
    image_tokens: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    line: int = 0
