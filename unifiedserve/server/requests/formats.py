"""Define formats that an answer may be bound to: OpenAI's and vLLM's fields."""

from typing import Annotated, Any

from msgspec import Meta

from unifiedserve.server.requests.base import Strict


class PlainText(Strict, tag_field="type", tag="text"):
    pass


class JsonObject(Strict, tag_field="type", tag="json_object"):
    pass


class NamedSchema(Strict):
    """Hold a JSON schema as OpenAI's clients send it. It is always enforced, `strict` or not."""

    name: str
    schema: dict[str, Any] | bool = True
    description: str | None = None
    strict: bool | None = None


class JsonSchema(Strict, tag_field="type", tag="json_schema"):
    json_schema: NamedSchema


ResponseFormat = PlainText | JsonObject | JsonSchema
Schema = Annotated[dict[str, Any] | bool | str, Meta(description="A JSON schema, or its JSON text")]
Choices = Annotated[list[str], Meta(min_length=1, max_length=1024)]


class StructuredOutputs(Strict):
    """Set vLLM's options for constrained answers: exactly one of the first five."""

    json: Schema | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    json_object: bool | None = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool | None = None
