"""Which parts of ARCHITECTURE.md come from the code? `python -m tests.architecture.document`
writes them anew; a test compares."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.domain.states import MOVES, TERMINAL, State
from jobs.store import keys

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"


def state_diagram() -> str:
    """The state machine as a Mermaid diagram, from the table of moves."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued: submit"]
    for move in MOVES:
        marks = " (token)" if move.needs_token else ""
        marks += ", attempt + 1" if move.counts_attempt else ""
        lines.append(f"    {move.source} --> {move.target}: {move.verb}{marks}")
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join([*lines, "```"])


def key_table() -> str:
    """Every family of keys, its type, what it holds and when it ends."""
    lines = ["| key | type | holds | ends |", "|---|---|---|---|"]
    for key in keys.ALL:
        spelling = (keys.PREFIX + key.spelling).replace("%s", "…")
        holds = key.holds.replace("|", "\\|")
        lines.append(f"| `{spelling}` | {key.type} | {holds} | {key.end} |")
    return "\n".join(lines)


PARTS = {"states": state_diagram, "keys": key_table}


def written_anew(text: str) -> str:
    """`text` with every generated part as it should be."""
    for name, part in PARTS.items():
        pattern = rf"(<!-- {name}: generated -->\n).*?(<!-- end -->)"
        body = part().replace("\\", "\\\\")
        text, count = re.subn(pattern, rf"\g<1>{body}\n\g<2>", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"ARCHITECTURE.md has {count} parts named {name}")
    return text


if __name__ == "__main__":
    PAGE.write_text(written_anew(PAGE.read_text("utf-8")), "utf-8")
