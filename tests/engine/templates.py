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
# For the bundled model, which knows media before texts: tools, calls and their results, thoughts.
AGENTS = """\
{%- if tools -%}
{{- '<|im_start|>system\nTools: ' + (tools | tojson) + '\nCall: <tool_call> json </tool_call><|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\n' -}}
{%- if message.reasoning_content -%}
{{- '<think>\n' + message.reasoning_content + '\n</think>\n' -}}
{%- endif -%}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for kind in ['image', 'video'] -%}
{%- for part in message.content if part.type == kind -%}
<|vision_start|><|{{ kind }}_pad|><|vision_end|>
{%- endfor -%}
{%- endfor -%}
{{- message.content | selectattr('type', 'eq', 'text') | map(attribute='text') | join -}}
{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{%- set made = {'name': call.function.name, 'arguments': call.function.arguments} -%}
{{- '<tool_call>\n' + (made | tojson) + '\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' + ('<think>\n' if enable_thinking else '') -}}
{%- endif -%}
"""

TEMPLATES = {"tools": TOOLS, "images first": IMAGES_FIRST, "agents": AGENTS}
