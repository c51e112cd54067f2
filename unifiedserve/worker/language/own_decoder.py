"""Have a device decode by itself, if it can: every rank of a worker that decodes has such a decoder, or none has."""

from unifiedserve.device import Decoder
from unifiedserve.memory.kv_cache import KVPages
from unifiedserve.models.adapter import LanguageAdapter
from unifiedserve.models.context_length import context_length
from unifiedserve.placement import Stage
from unifiedserve.worker.spec import WorkerSpec


def generates(spec: WorkerSpec, adapter: LanguageAdapter) -> bool:
    """Tell whether a worker makes texts."""
    return Stage.DECODE in spec.instance.stages and adapter.pooling is None


def decoder_of(spec: WorkerSpec, adapter: LanguageAdapter, kv: KVPages) -> Decoder | None:
    """Return what decodes on the device by itself, if anything does."""
    if not generates(spec, adapter):
        return None
    longest = spec.config.checkpoint.max_model_len or context_length(adapter.config.get_text_config())
    return adapter.decoder(kv, spec.config.scheduling.max_running, kv.tokens_held(longest))
