"""Run the modules of the family in `gemma3.py`."""

from typing import ClassVar

import torch
from torch import Tensor

from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.picture_adapter import PictureAdapter


class Gemma3Adapter(PictureAdapter):
    whole_runs: ClassVar[bool] = True


class Gemma3TextAdapter(LanguageAdapter):
    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        logits, cap = super().logits(hidden), self.config.final_logit_softcapping
        return logits if cap is None else logits.div_(cap).tanh_().mul_(cap)
