"""Adapt Qwen2-VL: Qwen2.5-VL's rules and language model behind a vision tower without windows."""

from typing import ClassVar

from unifiedserve.models.families.qwen2_5_vl.adapter import Qwen25VLAdapter
from unifiedserve.models.families.qwen_vision import UnitTower


class Qwen2VLAdapter(Qwen25VLAdapter):
    tower: ClassVar[type] = UnitTower
