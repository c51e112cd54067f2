"""Write a GGUF file whose language model any reader of Qwen2 knows.

The language model of Qwen2.5-VL is that of Qwen2 but for its positions in three dimensions, which texts have alike. So
a reader that does not know the architecture reads the same model from the same tensors under the other name.
"""

from pathlib import Path

import gguf

_NAME, _PLAIN = "qwen2vl", "qwen2"
_SECTIONS = f"{_NAME}.rope.dimension_sections"


def language_file(file: Path) -> Path:
    """Return such a file of a GGUF file; it is made beside it if missing."""
    made = file.with_stem(f"{file.stem}-language")
    if made.exists():
        return made
    partial = made.with_suffix(".partial")
    reader, writer = gguf.GGUFReader(file), gguf.GGUFWriter(partial, _PLAIN)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", _SECTIONS):
            part = field.types[-1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            name = field.name.replace(f"{_NAME}.", f"{_PLAIN}.")
            writer.add_key_value(name, field.contents(), field.types[0], part)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.replace(made)
