"""Which library's attention a GPU computes with."""

from importlib.util import find_spec

from unifiedserve.config import AttentionBackend
from unifiedserve.device.base import Device
from unifiedserve.device.operators import Attention
from unifiedserve.errors import ConfigError


def check_attention_backend(name: AttentionBackend) -> None:
    """Raise ConfigError if the library is not installed; nothing of it is imported."""
    if name == "flashinfer" and find_spec("flashinfer") is None:
        raise ConfigError(
            "--attention-backend flashinfer: FlashInfer is not installed; run `pip install flashinfer-python==0.6.13`, "
            "or choose triton"
        )


def attention_backend(name: AttentionBackend, device: Device) -> Attention:
    """Return the kernels for `--attention-backend`. Raises ConfigError if they are not installed."""
    from unifiedserve.device.triton.operators import TritonAttention

    check_attention_backend(name)
    triton = TritonAttention(device.upload)
    if name != "flashinfer":
        return triton
    from unifiedserve.device.cuda.flashinfer import FlashInferAttention

    return FlashInferAttention(device, triton)
