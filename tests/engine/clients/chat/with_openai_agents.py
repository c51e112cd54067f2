"""OpenAI's Agents SDK, over chats and over responses: tools in a loop, streams, typed results, pictures."""

import asyncio
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from given import KEY, MODEL, PICTURE, PICTURE_ANSWER, PICTURE_QUESTION, URL, Drawing, data_url
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0)
settings = ModelSettings(temperature=0, max_tokens=600)
drawn: list[Drawing] = []


@function_tool
def draw(drawing: Drawing) -> str:
    """Draw a shape."""
    drawn.append(drawing)
    return "Drawn."


async def use(model: Any) -> None:
    artist = Agent(
        name="Artist",
        instructions="Draw.",
        model=model,
        tools=[draw],
        model_settings=settings.resolve(ModelSettings(tool_choice="required", parallel_tool_calls=False)),
    )
    result = await Runner.run(artist, "Draw.")
    assert isinstance(result.final_output, str)
    assert len(drawn) == 1
    await Runner.run(artist, [*result.to_input_list(), {"role": "user", "content": "Again."}])
    assert len(drawn) == 2
    streamed = Runner.run_streamed(artist, "Draw.")
    events = [event.type async for event in streamed.stream_events()]
    assert len(drawn) == 3
    assert "raw_response_event" in events
    designer = Agent(name="Designer", model=model, output_type=Drawing, model_settings=settings)
    assert isinstance((await Runner.run(designer, "Draw.")).final_output, Drawing)
    viewer = Agent(name="Viewer", model=model, model_settings=settings)
    picture: Any = [
        {"type": "input_image", "image_url": data_url(PICTURE), "detail": "auto"},
        {"type": "input_text", "text": PICTURE_QUESTION},
    ]
    seen = await Runner.run(viewer, [{"role": "user", "content": picture}])
    assert PICTURE_ANSWER in seen.final_output
    drawn.clear()


async def main() -> None:
    for kind in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        await use(kind(MODEL, openai_client=client))


asyncio.run(main())
