"""Encoders that stop between their layers."""

from collections.abc import Generator
from typing import Any

import pytest
from torch import nn

from unifiedserve.models.encoder_layers import layer_by_layer, pause, pause_before_each_layer


def run(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    """Return how often it stopped, and its result."""
    stops = 0
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return stops, ended.value
        stops += 1


def test_a_model_stops_before_each_layer_of_its_towers_and_no_other() -> None:
    text = nn.ModuleDict({"layers": nn.ModuleList([nn.Identity()] * 5)})
    model = nn.ModuleDict({"vision": nn.ModuleList([nn.Identity() for _ in range(3)]), "text": text})
    pause_before_each_layer(model, text)

    def forward() -> str:
        for layer in (*model["vision"], *text["layers"]):
            layer("x")
        return "encoded"

    assert run(layer_by_layer(forward)) == (3, "encoded")
    assert forward() == "encoded"


def test_an_error_comes_out_where_it_is_waited_for() -> None:
    def forward() -> None:
        pause()
        raise ValueError("bad patches")

    steps = layer_by_layer(forward)
    next(steps)
    with pytest.raises(ValueError, match="bad patches"):
        next(steps)


def test_what_is_given_up_ends() -> None:
    ended = []

    def forward() -> None:
        try:
            pause()
        finally:
            ended.append(True)

    steps = layer_by_layer(forward)
    next(steps)
    steps.close()
    assert ended


def test_one_encoder_may_run_while_another_stands_still() -> None:
    def forward(layers: int) -> int:
        for _ in range(layers):
            pause()
        return layers

    outer = layer_by_layer(lambda: forward(2))
    next(outer)
    assert run(layer_by_layer(lambda: forward(3))) == (3, 3)
    assert run(outer) == (1, 2)
