"""Pydantic AI, over chats and over responses: tools in a loop, typed results by each of its ways, pictures, streams."""

import asyncio
from typing import Any

from given import KEY, MODEL, PICTURE, PICTURE_ANSWER, PICTURE_QUESTION, URL, Drawing
from pydantic_ai import Agent, BinaryContent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

provider = OpenAIProvider(base_url=URL, api_key=KEY)
settings = ModelSettings(temperature=0, max_tokens=600, parallel_tool_calls=False)


async def use(model: Any) -> None:
    for way in (ToolOutput, NativeOutput):
        designer = Agent(model, output_type=way(Drawing), model_settings=settings)
        result = await designer.run("Draw.")
        assert isinstance(result.output, Drawing)
        again = await designer.run("Again.", message_history=result.all_messages())
        assert isinstance(again.output, Drawing)
        async with designer.run_stream("Draw.") as stream:
            assert isinstance(await stream.get_output(), Drawing)
    viewer = Agent(model, instructions="Look.", model_settings=settings)
    picture = BinaryContent(PICTURE.read_bytes(), media_type="image/jpeg")
    assert PICTURE_ANSWER in (await viewer.run([picture, PICTURE_QUESTION])).output


async def main() -> None:
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        await use(kind(MODEL, provider=provider))


asyncio.run(main())
