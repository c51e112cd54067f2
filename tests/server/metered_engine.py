"""An engine for metrics: what they read of it, at rest."""


class Engine:
    def worker_requests(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("decode", "decode"): (3, 1)}

    def stages(self) -> dict[str, tuple[int, int]]:
        return {"encode": (1, 4), "decode": (3, 0)}

    def buffers(self) -> dict[tuple[str, str], tuple[int, int]]:
        return {("mem0", "kv"): (5, 20), ("mem0", "patch"): (0, 0)}

    def peaks(self) -> dict[tuple[str, str], int]:
        return {("mem0", "kv"): 11}

    def cached(self) -> dict[tuple[str, str], int]:
        return {("mem0", "kv"): 7}

    def memory(self) -> dict[str, int]:
        return {"weights": 1 << 20, "KV cache": 3 << 20}

    def hosts(self) -> dict[str, int]:
        return {"encode": 2}

    def silences(self) -> dict[str, float]:
        return {"vision": 1.5}

    def held(self) -> tuple[float, float]:
        return 0.25, 0.07

    target_between_tokens = 0.08
    role_changes = 7
    in_flight = 4
    waiting = 3
    page_tokens = 16
