"""Describe matrices in panels, which some devices (`Device.panels`) keep: how they are stored, what uses them."""

from unifiedserve.device.cpu.matrix import Matrix
from unifiedserve.device.cpu.modules import PanelEmbedding, PanelLinear, packs, weight_bits
from unifiedserve.device.cpu.panels import OUTPUTS, by_panel, pack_halves, panels_shape, to_panels

__all__ = [
    "OUTPUTS",
    "Matrix",
    "PanelEmbedding",
    "PanelLinear",
    "by_panel",
    "pack_halves",
    "packs",
    "panels_shape",
    "to_panels",
    "weight_bits",
]
