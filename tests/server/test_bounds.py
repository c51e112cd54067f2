"""Bounds of sampling parameters: the API refuses what the engine would refuse, and nothing less."""

import httpx
import pytest
from msgspec import inspect
from scripted_app import question

from unifiedserve.messages.sampling_params import SamplingParams
from unifiedserve.server.requests.generation import GenerationOptions

CHECKED = set(SamplingParams.__struct_fields__) & set(GenerationOptions.__struct_fields__) - {
    "top_p",  # 0 becomes temperature 0
    "max_tokens",  # in most requests at least 1: 0 needs `echo`
    "stop",
    "stop_token_ids",
}


def bounds(struct: type, name: str) -> list[tuple[object, ...]]:
    """Every number in the type of a field, by its bounds."""
    shape = inspect.type_info(struct)
    assert isinstance(shape, inspect.StructType)
    (field,) = (field for field in shape.fields if field.name == name)
    return numbers(field.type)


def numbers(shape: inspect.Type) -> list[tuple[object, ...]]:
    match shape:
        case inspect.Metadata():
            return numbers(shape.type)
        case inspect.UnionType():
            return [number for member in shape.types for number in numbers(member)]
        case inspect.DictType():
            return numbers(shape.value_type)
        case inspect.IntType() | inspect.FloatType():
            return [(type(shape), shape.gt, shape.ge, shape.lt, shape.le)]
    return []


@pytest.mark.parametrize("name", sorted(CHECKED))
def test_the_api_and_the_engine_agree(name: str) -> None:
    assert bounds(GenerationOptions, name) == bounds(SamplingParams, name)


@pytest.mark.parametrize(("n", "status"), [(64, 200), (65, 400)])
async def test_the_most_answers(client: httpx.AsyncClient, n: int, status: int) -> None:
    assert (await client.post("/v1/chat/completions", json=question(n=n))).status_code == status
