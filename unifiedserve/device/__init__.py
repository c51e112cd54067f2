"""Compute on devices: a package a kind of device, and what all share.

Users of devices import from here alone, and matrices in panels from `panels.py`. `base.py` is what the engine asks of a
device. `cpu/` and `cuda/` answer; a third one would be a folder beside them, and a name in `selection.py` and
`config.DeviceName`.
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
from unifiedserve.device.highest import likeliest
from unifiedserve.device.selection import files_of, open_device, select_device
from unifiedserve.device.uploads import upload_behind

__all__ = [
    "CPU",
    "AttentionStep",
    "DecodeRow",
    "DecodeStep",
    "Decoder",
    "Device",
    "Exchange",
    "Exchanges",
    "Layer",
    "LinearWeights",
    "Meeting",
    "Pending",
    "Room",
    "SequenceGroup",
    "SideQueue",
    "StepRunner",
    "back_to_back",
    "files_of",
    "likeliest",
    "open_device",
    "select_device",
    "upload_behind",
]
