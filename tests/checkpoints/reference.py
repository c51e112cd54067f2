"""transformers' own processor and model for a checkpoint, which say what is right.

Its video processor needs torchvision, whose builds for other torches import once two operator schemas are there. Beside
a CUDA build of torch there is one that fits, which aborts where the schemas are there already.
"""

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

Frames = npt.NDArray[np.uint8]  # [T, H, W, 3]


def import_torchvision() -> None:
    if "torchvision" in sys.modules:
        return
    for operator in () if torch.version.cuda else ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")


import_torchvision()
transformers: Any = importlib.import_module("transformers")


@dataclass
class Case:
    """A conversation with its media; each kind of media in prompt order."""

    messages: list[dict[str, Any]]
    images: list[Frames] = field(default_factory=list)  # [H, W, 3]
    videos: list[Frames] = field(default_factory=list)
    fps: float = 8.0
    sampling: dict[str, Any] = field(default_factory=lambda: {"do_sample_frames": False})


@dataclass(repr=False)
class Reference:
    processor: Any
    model: Any

    def inputs(self, case: Case, **kwargs: Any) -> Any:
        text = self.processor.apply_chat_template(case.messages, add_generation_prompt=True, tokenize=False)
        if (bos := self.tokenizer.bos_token) and text.startswith(bos):  # as the template itself would be tokenised
            kwargs["add_special_tokens"] = False
        if not (case.images or case.videos):
            return self.processor(text=[text], return_tensors="pt", **kwargs)
        metadata = [
            {
                "total_num_frames": len(frames),
                "fps": case.fps,
                "duration": len(frames) / case.fps,
                "frames_indices": list(range(len(frames))),
            }
            for frames in case.videos
        ]
        images = [Image.fromarray(image) for image in case.images]
        return self.processor(
            text=[text],
            images=[images] if images else None,  # those of one conversation, as `apply_chat_template` passes them on
            videos=list(case.videos) or None,
            video_metadata=metadata or None,
            return_tensors="pt",
            **(case.sampling if case.videos else {}),
            **kwargs,
        )

    @property
    def tokenizer(self) -> Any:
        return getattr(self.processor, "tokenizer", self.processor)

    def sampled(self, case: Case) -> tuple[Any, torch.Tensor]:
        """The inputs of a case with a video whose frames its `sampling` chooses, and the video's uint8 patches."""
        processor = self.processor.video_processor
        saved, processor.fps = processor.fps, None if "num_frames" in case.sampling else processor.fps
        try:
            return self.inputs(case), self.uint8_patches(case)["video"]
        finally:
            processor.fps = saved

    def generate(self, case: Case, count: int) -> list[int]:
        """Greedy tokens, EOS included if it came."""
        inputs = self.inputs(case)
        out = self.model.generate(**inputs, max_new_tokens=count, do_sample=False)
        tokens: list[int] = out[0, inputs["input_ids"].shape[1] :].tolist()
        return tokens

    def uint8_patches(self, case: Case) -> dict[str, torch.Tensor]:
        """The patches of the images and of the videos, resized by transformers but not normalised."""
        inputs = self.inputs(case, do_rescale=False, do_normalize=False)
        keys = {"image": "pixel_values", "video": "pixel_values_videos"}
        return {kind: inputs[key].to(torch.uint8) for kind, key in keys.items() if key in inputs}


def load(checkpoint: Path) -> Reference:
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    if config is config.get_text_config():
        model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
        return Reference(transformers.AutoTokenizer.from_pretrained(checkpoint), model.eval())
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    return Reference(transformers.AutoProcessor.from_pretrained(checkpoint), model.eval())


def score(model: Any, inputs: Any) -> torch.Tensor:
    """Return log probabilities [n, vocab] after each token, by a model of transformers in its own type."""
    typed = {name: value.to(model.dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    with torch.inference_mode():
        return torch.as_tensor(model(**typed).logits[0].log_softmax(-1))
