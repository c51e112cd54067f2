"""Name the placements of the systems that are compared with each other.

Each is a list of groups of parts. Groups have cores of their own; with a single one all parts share all cores.
"""

Groups = tuple[tuple[str, ...], ...]

NAMED: dict[str, Groups] = {
    "shared": (("v", "ep", "d"),),  # UnifiedServe
    "monolithic": (("v", "epd"),),  # one loop, as vLLM and SGLang have it
    "split": (("v", "ep"), ("d",)),  # UnifiedServe's stages, on devices of their own
    "ep-d": (("vep",), ("d",)),  # HydraInfer's EP+D, DistServe
    "ed-p": (("v", "ed"), ("p",)),  # HydraInfer's ED+P
    "e-p-d": (("v", "e"), ("p",), ("d",)),  # EPD
    "one": (("vepd",),),
}
