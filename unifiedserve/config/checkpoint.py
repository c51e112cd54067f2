"""Choose what is served, and how its checkpoint is read."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from unifiedserve.errors import ConfigError


class CheckpointOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choose what is served, and how its checkpoint is read."""

    model: Annotated[
        str,
        Meta(
            description="The model to serve: a directory of a checkpoint, its id on the Hugging Face hub, or the "
            ".gguf file of a language model. Empty: the bundled model, which knows drawn shapes only"
        ),
    ] = ""
    mmproj: Annotated[
        str,
        Meta(
            description="The .gguf file of the vision tower, for a .gguf model. Empty: the file beside the model's "
            "whose name has mmproj in it, if there is one"
        ),
    ] = ""
    served_model_name: Annotated[
        str, Meta(description="The name by which requests ask for the model. Empty: the model argument as it is given")
    ] = ""
    chat_template: Annotated[
        str,
        Meta(description="A Jinja file to use instead of the checkpoint's own chat template. Empty: the checkpoint's"),
    ] = ""
    generation_config: Annotated[
        str,
        Meta(
            description="Where requests that do not name temperature, top_p, top_k, min_p or repetition_penalty get "
            "them from. auto: the checkpoint's generation_config.json; none: OpenAI's defaults, temperature 1 alone; "
            "or a folder with such a file"
        ),
    ] = "auto"
    override_generation_config: Annotated[
        str,
        Meta(
            description="A JSON object over the file's values, like '{\"temperature\": 0.7}'. "
            "Empty: the file's values alone"
        ),
    ] = ""
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(
            description="The number type of weights and activations. auto: bfloat16 where the device multiplies it "
            "in hardware, else float32"
        ),
    ] = "auto"
    load_format: Annotated[
        Literal["auto", "dummy"],
        Meta(
            description="Where the weights come from. auto: the checkpoint; dummy: random weights of the same "
            "shapes, to measure speed without the files (the answers are nonsense)"
        ),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int4"],
        Meta(
            description="Quantise the language model's matrices while loading: int8 takes about half and int4 about "
            "a quarter of their memory in bfloat16; tokens come sooner, and answers change a little. "
            "Checkpoints that are quantised already are loaded as they are"
        ),
    ] = "none"
    importance: Annotated[
        str,
        Meta(
            description="An importance matrix for --quantization int4, from unifiedserve calibrate or llama.cpp's "
            "imatrix tool: codes are least off for the inputs that matter most, and answers change less. Empty: none"
        ),
    ] = ""
    vision_quantization: Annotated[
        Literal["none", "int8"],
        Meta(
            description="Quantise the vision tower's matrices while loading: int8 encodes images and videos sooner, "
            "and answers change a little. For the families of Qwen's vision towers, on the CPU"
        ),
    ] = "none"
    no_weight_cache: Annotated[
        bool,
        Meta(
            description="Make the weights from the checkpoint at each start, instead of keeping them in the user's "
            "cache folder as the CPU's kernels read them. Saves the disk as much as they take of the memory"
        ),
    ] = False
    max_model_len: Annotated[
        int,
        Meta(
            ge=0,
            description="The longest prompt and answer together, in tokens. 0: the model's own context length. "
            "Lower it to refuse longer requests",
        ),
    ] = 0
    tool_call_parser: Annotated[
        Literal["auto", "hermes", "llama3_json", "mistral"],
        Meta(
            description="The format in which the model writes tool calls. auto: found out from the chat template; "
            "name it if tool calls appear as text in answers"
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        Literal["auto", "think", "none"],
        Meta(
            description="Put text in <think> tags into the field `reasoning_content` of the answer. think: "
            "always; none: never; auto: if the chat template mentions such tags"
        ),
    ] = "auto"

    def check(self) -> None:
        """Raise ConfigError for options that contradict each other."""
        if self.importance and self.quantization != "int4":
            raise ConfigError("--importance is for codes of 4 bits: give --quantization int4, too, or leave it out")
