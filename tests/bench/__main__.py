"""Which benches run, and do they meet their figures? `python -m tests.bench [NAME ...]`.

Ends with status 1 where a figure was missed or a bench broke off, 130 on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from rich.console import Console

from service.stack.redis_binary import find_redis_binary
from tests.bench import (
    chains,
    claim_scale,
    claim_settle,
    drain,
    generations,
    http_calls,
    latency,
    lost_reply,
    sse,
    steps,
    submit,
)
from tests.bench.figures import Figure
from tests.bench.report import print_table, write_json, write_markdown
from tests.bench.stage import Stage

BENCHES: dict[str, Callable[[Stage], list[Figure]]] = {
    "submit": submit.run,
    "claim_settle": claim_settle.run,
    "drain": drain.run,
    "http_calls": http_calls.run,
    "claim_scale": claim_scale.run,
    "latency": latency.run,
    "generations": generations.run,
    "lost_reply": lost_reply.run,
    "sse": sse.run,
    "steps": steps.run,
    "chains": chains.run,
}


def main() -> int:
    """Run the benches that were named, all without a name."""
    options = _parse()
    console = Console(stderr=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    started_s = time.monotonic()
    figures: list[tuple[str, Figure]] = []
    try:
        for name in options.names or BENCHES:
            figures += [(name, figure) for figure in _run(name, options.quick, console)]
    except KeyboardInterrupt:
        console.print("interrupted: all that was started is ended")
        return 130
    machine = _machine()
    print_table(Console(width=_width()), figures, machine)
    if options.json:
        write_json(options.json, figures, machine)
    if options.markdown:
        write_markdown(options.markdown, figures, machine)
    missed = [figure.name for _, figure in figures if figure.ok is False]
    console.print(f"{len(figures)} figures in {time.monotonic() - started_s:.0f} s")
    for name in missed:
        console.print(f"missed: {name}", style="red")
    return 1 if missed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="small amounts, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="put the table between the marks in FILE"
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    return options


def _run(name: str, quick: bool, console: Console) -> list[Figure]:
    def say(text: str) -> None:
        console.print(f"[dim]{name}: {text}[/]")

    with (
        tempfile.TemporaryDirectory(prefix="genqueue-bench-") as folder,
        Stage(Path(folder), quick=quick, say=say) as stage,
    ):
        try:
            return BENCHES[name](stage)
        except Exception as error:
            # One bench that breaks off must not take the figures of the others with it.
            console.print_exception()
            return [Figure(f"{name} broke off", type(error).__name__, "", "a figure", ok=False)]


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _machine() -> str:
    binary = find_redis_binary()
    told = subprocess.run(
        [str(binary.path), "--version"], capture_output=True, text=True, check=True
    )
    version = re.search(r"\bv=([0-9.]+)", told.stdout)
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()},"
        f" {binary.path.name} {version[1] if version else ''} ({binary.origin})"
    )


def _width() -> int | None:
    """The terminal's width; wide enough for whole rows where the output goes to a file."""
    return None if sys.stdout.isatty() else 150


if __name__ == "__main__":
    sys.exit(main())
