"""Remember the shares with which heavy work begins beside streams: tried once for a model on a device."""

import hashlib
import logging
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import msgspec

from unifiedserve.user_cache import cache_folder
from unifiedserve.whole_file import write_whole
from unifiedserve.worker.spec import WorkerSpec

_log = logging.getLogger(__name__)
_MOST = 256  # kept
_SHARES = msgspec.json.Decoder(dict[str, float])


class KnownShares:
    """Keep a file of shares in the user's cache. One that cannot be read or written is as if there were none."""

    def __init__(self, path: Path | None = None) -> None:
        """Use the file at `path`; None: the usual one."""
        self._path = path or cache_folder() / "shares.json"

    def find(self, key: str) -> float | None:
        """Return the share that was tried out; None if none was."""
        share = self._read().get(key)
        return share if share is not None and 0 < share <= 1 else None

    def keep(self, key: str, share: float) -> None:
        """Remember a share, in place of the oldest one if there are too many."""
        shares = self._read()
        shares.pop(key, None)
        shares = dict([*shares.items(), (key, share)][-_MOST:])
        try:
            write_whole(self._path, msgspec.json.encode(shares))
        except OSError as error:
            _log.info("what was tried out will be tried again at the next start: %s", error)

    def _read(self) -> dict[str, float]:
        with suppress(OSError, msgspec.DecodeError):
            return _SHARES.decode(self._path.read_bytes())
        return {}


def key_of(spec: WorkerSpec, device: str) -> str:
    """Return what a share depends on: the model, the device's name, the stages, the sizes of steps, the instance."""
    config, scheduling = spec.config, spec.config.scheduling
    checkpoint = (Path(spec.model_dir) / "config.json").read_bytes()
    sizes = (
        scheduling.prefill_chunk_tokens,
        scheduling.encode_budget_tokens,
        scheduling.max_running,
        scheduling.slo_tbt,
    )
    how = (
        spec.dtype,
        scheduling.scheduling,
        config.machine.attention_backend,
        config.machine.batch_invariant,
        config.machine.share,
        config.machine.gpu_threads,
        version("torch"),
    )
    parts = (device, spec.instance.stages, hashlib.sha256(checkpoint).hexdigest(), sizes, how)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
