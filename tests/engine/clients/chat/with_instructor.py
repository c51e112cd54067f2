"""Instructor: typed answers by tools and by schemas, in parts as they come, and about a picture."""

import instructor
import openai
from given import KEY, MODEL, PICTURE, URL, Drawing
from instructor.processing.multimodal import Image

for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT):
    client = instructor.from_openai(openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0), mode=mode)
    made = client.create(
        model=MODEL,
        messages=[{"role": "user", "content": ["Draw.", Image.from_path(PICTURE)]}],
        response_model=Drawing,
        temperature=0,
        max_tokens=600,
        max_retries=0,
    )
    assert isinstance(made, Drawing)
    parts = list(
        client.create_partial(
            model=MODEL,
            messages=[{"role": "user", "content": "Draw."}],
            response_model=Drawing,
            temperature=0,
            max_tokens=600,
        )
    )
    assert len(parts) > 2
    assert parts[-1].corners
