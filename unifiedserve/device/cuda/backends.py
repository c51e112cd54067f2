"""Choose the library whose attention a GPU computes with."""

from importlib.util import find_spec

from unifiedserve.config import AttentionBackend
from unifiedserve.device.base import Device
from unifiedserve.device.operators import Attention
from unifiedserve.errors import ConfigError


def check_attention_backend(name: AttentionBackend, batch_invariant: bool) -> None:
    """Raise ConfigError if the library is not installed or not invariant; nothing of it is imported."""
    if name == "flashinfer" and batch_invariant:
        raise ConfigError(
            "--batch-invariant: FlashInfer splits a sequence's keys by what else is in its batch; leave out "
            "--attention-backend flashinfer"
        )
    if name == "flashinfer" and find_spec("flashinfer") is None:
        raise ConfigError(
            "--attention-backend flashinfer: FlashInfer is not installed; run `pip install flashinfer-python==0.6.13`, "
            "or choose triton"
        )


def attention_backend(name: AttentionBackend, device: Device, *, batch_invariant: bool = False) -> Attention:
    """Return the kernels for `--attention-backend`. Raises ConfigError if they are not there or not invariant."""
    from unifiedserve.device.triton.operators import TritonAttention

    check_attention_backend(name, batch_invariant)
    triton = TritonAttention(device.upload, in_order=batch_invariant)
    if name != "flashinfer":
        return triton
    from unifiedserve.device.cuda.flashinfer import FlashInferAttention

    return FlashInferAttention(device, triton)
