"""Size the buffers and caches. Where there are several memories, the sizes are those of each."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MIB = 1 << 20
DEFAULT_KV_CACHE_MIB = 512  # in host memory


class MemoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Size the buffers and caches. Where there are several memories, the sizes are those of each."""

    kv_cache_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="The size of the KV cache in MiB, which bounds how many tokens running answers may hold. 0: "
            f"{DEFAULT_KV_CACHE_MIB} on a CPU, on a GPU all that --gpu-memory-utilization leaves. "
            "Raise it for long contexts or many requests at once",
        ),
    ] = 0
    kv_cache_dtype: Annotated[
        Literal["auto", "int8"],
        Meta(
            description="The number type of keys and values in the KV cache. auto: that of --dtype; int8 (CPU "
            "only): half of bfloat16's memory, and answers change a little. Choose int8 for long "
            "contexts"
        ),
    ] = "auto"
    gpu_memory_utilization: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="The share of the GPU's memory that may be in use, other programs included. Lower it if "
            "other programs start later and need the GPU",
        ),
    ] = 0.9
    patch_buffer_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="The size of the buffer in MiB that passes image patches from vision to encode. Raise it if "
            "many large videos wait for it (unifiedserve top shows its peak)",
        ),
    ] = 256
    visual_buffer_mib: Annotated[
        int,
        Meta(
            ge=1,
            description="The size of the buffer in MiB that passes visual tokens from encode to prefill. Raise it "
            "if many long videos wait for it (unifiedserve top shows its peak)",
        ),
    ] = 128
    kv_page_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=256,
            description="Tokens in a page of the KV cache. Smaller pages waste less on short prompts, larger ones "
            "cost less bookkeeping",
        ),
    ] = 16
    no_prefix_cache: Annotated[
        bool,
        Meta(
            description="Compute every prompt from its start, even if an earlier prompt began with the same tokens. "
            "For measurements"
        ),
    ] = False
    visual_cache_mib: Annotated[
        int,
        Meta(
            ge=0,
            description="Additional visual buffer in MiB that keeps the visual tokens of images and videos which "
            "may be asked about again. 0: keep none",
        ),
    ] = 128
    patch_page_rows: Annotated[
        int, Meta(ge=1, description="Patches in a page of the patch buffer; there is rarely a reason to change it")
    ] = 64
    visual_page_tokens: Annotated[
        int,
        Meta(ge=1, description="Visual tokens in a page of the visual buffer; there is rarely a reason to change it"),
    ] = 16
    kv_growth_reserve: Annotated[
        float,
        Meta(
            ge=0,
            le=0.5,
            description="The share of the KV cache that prefill leaves free, so that running answers can grow. "
            "Raise it if requests are preempted often",
        ),
    ] = 0.05

    def kv_dtype(self, dtype: str) -> str:
        """Return the dtype of the KV cache beside activations of another."""
        return dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
