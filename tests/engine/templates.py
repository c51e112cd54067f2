"""Chat templates that tests name in place of the checkpoint's own."""

from unifiedserve.models.checkpoint_files import CHAT_TEMPLATE

TOOLS = (
    "{%- if tools -%}<|im_start|>system\nTools: {{ tools | tojson }}\nCall: <tool_call> json </tool_call><|im_end|>\n"
    "{%- endif -%}" + CHAT_TEMPLATE
)
IMAGES_FIRST = """\
{%- for kind in ['image', 'video'] -%}
{%- for part in messages[0].content if part.type == kind -%}
<|vision_start|><|{{ kind }}_pad|><|vision_end|>
{%- endfor -%}
{%- endfor -%}
{{- messages[0].content[-1].text -}}
"""

TEMPLATES = {"tools": TOOLS, "images first": IMAGES_FIRST}
