"""What does a models file say of models on a local server of one's own?"""

from __future__ import annotations

HEAD = """\
default_model = "{default}"

[providers.local]
type = "openai"
base_url = "{base_url}"
"""
MODEL = """
[[models]]
id = "{name}"
provider = "local"
input_usd_micros_per_mtok = 1_000_000
output_usd_micros_per_mtok = 1_000_000
"""


def models_text(base_url: str, *names: str) -> str:
    """The file: provider `local` at `base_url` with models called `names`, a dollar a million
    tokens; the first is the default."""
    models = "".join(MODEL.format(name=name) for name in names)
    return HEAD.format(default=names[0], base_url=base_url) + models
