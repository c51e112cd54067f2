"""Every family: importing the files of builders registers theirs."""

import builders_gemma  # noqa: F401
import builders_idefics  # noqa: F401
import builders_llava  # noqa: F401
import builders_minicpm  # noqa: F401
import builders_mllama  # noqa: F401
import builders_qwen  # noqa: F401
import builders_scoring  # noqa: F401
from builders import FAMILIES

__all__ = ["FAMILIES"]
