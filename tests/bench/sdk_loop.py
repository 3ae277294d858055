"""How fast is the SDK without any queue? One process, some threads, one client.

`python -m tests.bench.sdk_loop BASE_URL MODEL THREADS CALLS BEGIN` makes one call a thread to
warm up, prints `ready`, waits until the file BEGIN is there, makes the calls and prints the
instants at which the first began and the last ended.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from openai import OpenAI


def main(base_url: str, model: str, threads: int, calls: int, begin: Path) -> None:
    """Run the calls."""
    client = OpenAI(base_url=base_url, api_key="unused", max_retries=0)

    def ask() -> None:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Say hello."}]
        )

    _in_threads(threads, threads, ask)
    print("ready", flush=True)
    while not begin.exists():
        time.sleep(0.005)
    began_s = time.time()
    _in_threads(threads, calls, ask)
    print(began_s, time.time(), flush=True)


def _in_threads(threads: int, calls: int, ask: Callable[[], None]) -> None:
    left = iter(range(calls))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            ask()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
