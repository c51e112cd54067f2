"""Tell what number types take, by torch's names: the engine knows them without torch."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: bytes of a number
ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}


def name_of(dtype: "torch.dtype") -> str:
    """Return torch's name of a number type."""
    return str(dtype).removeprefix("torch.")
