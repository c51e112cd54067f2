"""What is to be seen of the engine on a GPU. These wait for its CUDA path; each says what it will do."""

from bench.gpu.figures import Figures, Skip


def families(figures: Figures) -> None:
    """Compare greedy float32 tokens (TF32 off) of every family and the bundled model with the references."""
    raise Skip(WAITS)


def bf16_logits(figures: Figures) -> None:
    """Compare bfloat16 logits with the references: relative error below 1e-2, never token by token."""
    raise Skip(WAITS)


def kill_workers(figures: Figures) -> None:
    """Kill each worker under load with SIGKILL: all requests are answered, no page is lost, weights stay."""
    raise Skip(WAITS)


def dummy_7b(figures: Figures) -> None:
    """Serve a model of Qwen2.5-VL-7B's shape with --load-format dummy, and ask about a video of 64 frames."""
    raise Skip(WAITS)


def decode_floor(figures: Figures) -> None:
    """Measure decode's step at batch 1 and at 64 sequences of 4k, beside the time that reading its bytes takes."""
    raise Skip(WAITS)


def stage_times(figures: Figures) -> None:
    """Measure each stage's step for one video: vision, encode, prefill, decode."""
    raise Skip(WAITS)


WAITS = "waits for the engine's CUDA path"
