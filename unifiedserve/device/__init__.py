"""Compute on devices: a package a kind of device, and what all share.

Users of devices import from here alone. `base.py` is what the engine asks of a device. `cpu/` and `cuda/` answer; a
third one would be a folder beside them, and a name in `selection.py` and `config.DeviceName`.
"""

from unifiedserve.device.adjacent import back_to_back
from unifiedserve.device.base import (
    AttentionStep,
    Decoder,
    DecodeRow,
    DecodeStep,
    Device,
    Exchange,
    Exchanges,
    Layer,
    LinearWeights,
    Meeting,
    Pending,
    Room,
    SequenceGroup,
    SideQueue,
    StepRunner,
)
from unifiedserve.device.cpu import CPU
from unifiedserve.device.panels import (
    OUTPUTS,
    Matrix,
    PanelEmbedding,
    PanelLinear,
    by_panel,
    pack_halves,
    packs,
    panels_shape,
    to_panels,
    weight_bits,
)
from unifiedserve.device.selection import files_of, open_device, select_device
from unifiedserve.device.uploads import upload_behind

__all__ = [
    "CPU",
    "OUTPUTS",
    "AttentionStep",
    "DecodeRow",
    "DecodeStep",
    "Decoder",
    "Device",
    "Exchange",
    "Exchanges",
    "Layer",
    "LinearWeights",
    "Matrix",
    "Meeting",
    "PanelEmbedding",
    "PanelLinear",
    "Pending",
    "Room",
    "SequenceGroup",
    "SideQueue",
    "StepRunner",
    "back_to_back",
    "by_panel",
    "files_of",
    "open_device",
    "pack_halves",
    "packs",
    "panels_shape",
    "select_device",
    "to_panels",
    "upload_behind",
    "weight_bits",
]
