"""Ask about a video with OpenAI's client: `python examples/ask_about_a_video.py [URL]`."""

import os
import sys

from openai import OpenAI

from unifiedserve.samples import FOLDER

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{URL}/v1", api_key=os.environ.get("OPENAI_API_KEY", "none"))

# Upload the file once, and name it by its id in each question about it.
video = client.files.create(file=FOLDER / "shapes-events.mp4", purpose="vision")
for question in ("What is in this video?", "At what time does the pink triangle appear?"):
    answer = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "video_url", "video_url": {"url": video.id}},
                    {"type": "text", "text": question},
                ],
            }
        ],
        max_tokens=64,
        temperature=0,
        extra_body={"return_media_usage": True},
    )
    (seen,) = answer.usage.media
    print(f"{question} {answer.choices[0].message.content}")
    print(f"  {seen['frames']} frames, {seen['tokens']} visual tokens")
