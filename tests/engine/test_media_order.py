"""A chat template may put media in another order than a request has them in."""

from collections.abc import Callable
from pathlib import Path

from daemon import Daemon
from media import Clip, make_image
from test_fidelity import answer, ask

TEMPLATE = """\
{%- for kind in ['image', 'video'] -%}
{%- for part in messages[0].content if part.type == kind -%}
<|vision_start|><|{{ kind }}_pad|><|vision_end|>
{%- endfor -%}
{%- endfor -%}
{{- messages[0].content[-1].text -}}
"""


def test_each_placeholder_gets_its_own_medium(
    tmp_path: Path, serve: Callable[..., Daemon], clips: Callable[[int], Clip]
) -> None:
    template = tmp_path / "images-first.jinja"
    template.write_text(TEMPLATE)
    daemon = serve(chat_template=str(template))
    large, small, clip = make_image(1, 150, 200), make_image(2, 60, 60), clips(9)
    as_rendered = ask([large, small, clip, "What is this?"], clips)
    reordered = ask([clip, large, small, "What is this?"], clips)
    other = ask([clip, small, large, "What is this?"], clips)
    assert answer(daemon, reordered) == answer(daemon, as_rendered)
    assert answer(daemon, other) != answer(daemon, as_rendered)
    daemon.wait_idle()
