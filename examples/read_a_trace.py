"""Ask about a video, and say where the time went: `python examples/read_a_trace.py [URL]`.

Run it twice: the second time the caches have what vision, encode and most of prefill would compute.
"""

import os
import sys
from collections import defaultdict

import httpx
from openai import OpenAI

from unifiedserve.samples import FOLDER

URL = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
KEY = os.environ.get("OPENAI_API_KEY", "none")
client = OpenAI(base_url=f"{URL}/v1", api_key=KEY)

video = client.files.create(file=FOLDER / "shapes-motion.mp4", purpose="vision")
answer = client.chat.completions.create(
    model=client.models.list().data[0].id,
    messages=[
        {
            "role": "user",
            "content": [
                {"type": "video_url", "video_url": {"url": video.id}},
                {"type": "text", "text": "Where is the white star moving?"},
            ],
        }
    ],
    max_tokens=64,
    extra_body={"media_io_kwargs": {"video": {"num_frames": 20}}},
)
print(answer.choices[0].message.content)

# The trace of one request, in Chrome's format: ui.perfetto.dev draws it. Times are in microseconds.
trace = httpx.get(
    f"{URL}/debug/trace", params={"request_id": answer.id}, headers={"Authorization": f"Bearer {KEY}"}
).raise_for_status()
stages = defaultdict(list)
for event in trace.json()["traceEvents"]:
    if event["ph"] == "X":  # a span; others name the processes
        stages[event["cat"], event["name"] == "queue"].append(event)
begin = min(event["ts"] for events in stages.values() for event in events)
for (stage, waits), events in sorted(stages.items(), key=lambda item: min(event["ts"] for event in item[1])):
    first = min(event["ts"] for event in events) - begin
    last = max(event["ts"] + event["dur"] for event in events) - begin
    print(f"{stage:8} {'waits' if waits else 'works'} {first / 1000:8.1f} … {last / 1000:8.1f} ms, {len(events)} spans")
