"""Print an answer as it is generated, and when its tokens came: `python examples/stream_an_answer.py [URL]`."""

import os
import sys
import time

from openai import OpenAI

from unifiedserve.samples import FOLDER

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none"))

video = client.files.create(file=FOLDER / "shapes-motion.mp4", purpose="vision")
started = time.perf_counter()
stream = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[
        {
            "role": "user",
            "content": [
                {"type": "video_url", "video_url": {"url": video.id}},
                {"type": "text", "text": "Describe this video."},
            ],
        }
    ],
    max_tokens=64,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},  # a last chunk counts the tokens
)
times = []
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        times.append(time.perf_counter() - started)
        print(chunk.choices[0].delta.content, end="", flush=True)
    if chunk.usage:
        print(f"\n{chunk.usage.completion_tokens} tokens, after {times[0]:.2f} to {times[-1]:.2f} s")
