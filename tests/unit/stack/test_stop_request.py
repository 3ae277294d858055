"""Is a request to stop never missed?"""

import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from service.stack.stop_request import StopRequest

WAITS_AFTER_THE_SIGNAL = """
    import os, signal, sys, time
    from service.stack.stop_request import StopRequest
    request = StopRequest()
    request.listen()
    os.kill(os.getpid(), int(sys.argv[1]))
    began_at_s = time.monotonic()
    assert request.wait(30)
    assert time.monotonic() - began_at_s < 10
    print(request.count)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_came_before_the_wait_ends_it(number: signal.Signals) -> None:
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WAITS_AFTER_THE_SIGNAL), str(int(number))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert told.stdout == "1\n"


def test_a_request_from_another_thread_ends_the_wait() -> None:
    request = StopRequest()
    threading.Timer(0.05, request.ask).start()
    assert request.wait(30)


def test_a_wait_without_a_request_ends_by_its_time() -> None:
    assert not StopRequest().wait(0.01)


def test_a_request_stays_for_every_later_wait() -> None:
    request = StopRequest()
    request.ask()
    assert request.wait(0)
    assert request.wait(0)
