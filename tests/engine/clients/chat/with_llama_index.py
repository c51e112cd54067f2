"""LlamaIndex: chats and streams, tools, typed answers, pictures."""

from given import KEY, MODEL, PICTURE, PICTURE_ANSWER, PICTURE_QUESTION, URL, Drawing
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

chat = OpenAILike(
    model=MODEL,
    api_base=URL,
    api_key=KEY,
    temperature=0,
    max_tokens=600,
    max_retries=0,
    is_chat_model=True,
    is_function_calling_model=True,
    should_use_structured_outputs=True,
)
USER = ChatMessage(role="user", content="Draw.")


def draw(drawing: Drawing) -> str:
    """Draw a shape."""
    return f"Drawn in {drawing.colour}."


assert chat.complete("Hello.").text
assert "".join(part.delta or "" for part in chat.stream_chat([USER]))
question = ChatMessage(role="user", blocks=[ImageBlock(path=PICTURE), TextBlock(text=PICTURE_QUESTION)])
assert PICTURE_ANSWER in (chat.chat([question]).message.content or "")

tool = FunctionTool.from_defaults(draw)
response = chat.chat_with_tools([tool], chat_history=[USER], tool_required=True)
(call,) = chat.get_tool_calls_from_response(response)
Drawing.model_validate(call.tool_kwargs["drawing"])
result = ChatMessage(role="tool", content="Drawn.", additional_kwargs={"tool_call_id": call.tool_id})
assert chat.chat_with_tools([tool], chat_history=[USER, response.message, result]).message is not None
*_, last = chat.stream_chat_with_tools([tool], chat_history=[USER], tool_required=True)
assert chat.get_tool_calls_from_response(last)[0].tool_kwargs == call.tool_kwargs

typed = chat.as_structured_llm(Drawing).complete("Draw.")
assert isinstance(typed.raw, Drawing)
