"""How is a prompt sent from a shell, and its answer waited for? (A1)"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from jobs.domain.job import PRIORITY_MAX, PRIORITY_MIN
from jobs.domain.states import State
from jobs.runtime import build
from jobs.settings import Settings, from_environment
from service.cli.jobs import check_name
from service.cli.output import as_json_option, console, print_json, shown, shown_block

if TYPE_CHECKING:
    from service.cli.callers import Caller, Look, Receipt

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_UNAVAILABLE: Final = 3
EXIT_INTERRUPTED: Final = 130
POLL_FIRST_S: Final = 0.1
POLL_MAX_S: Final = 1.0


@click.command()
@click.argument("text")
@click.option(
    "--priority", type=click.IntRange(PRIORITY_MIN, PRIORITY_MAX), help="Lower runs first."
)
@click.option("--model", help="An id of the models file.  [default: the one it names]")
@click.option("--max-attempts", type=int, help="1 to 10.  [default: 3]")
@click.option("--wait", is_flag=True, help="Wait for the end; print the answer, and nothing else.")
@click.option(
    "--within",
    "within_s",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop waiting then, with status 1; the job goes on.",
)
@click.option("--org", default="dev", show_default=True, help="Whose job it is, without an API.")
@click.option("--user", default="operator", show_default=True, help="Who made it, likewise.")
@click.option("--url", help="The API to send it to.  [default: GENQUEUE_URL, else Redis itself]")
@click.option("--key", help="The API key; rather set GENQUEUE_KEY, which no process list shows.")
@as_json_option
@click.pass_context
def submit(context: click.Context, /, text: str, **options: Any) -> None:
    """Send the prompt TEXT, or what comes on standard input where TEXT is `-`.

    With an address and a key it goes through the API, as the organisation of the key; without
    them straight into Redis, as an operator, for --org and --user.

    \b
    Example: genqueue submit "Why is the sky blue?" --wait
    """
    from service.cli.callers import (  # noqa: PLC0415  # the schemas cost a third of a second
        ApiUnavailableError,
        RequestRefusedError,
    )

    if options["within_s"] is not None and not options["wait"]:
        raise click.UsageError("--within goes with --wait.")
    body = {"prompt": _read(text)}
    for name in ("priority", "model", "max_attempts"):
        if options[name] is not None:
            body[name] = options[name]
    caller = _caller(context, options)
    try:
        receipt = caller.submit(body)
        if options["wait"]:
            _wait(caller, receipt, options["within_s"], options["as_json"])
        else:
            _print_receipt(receipt, options["as_json"])
    except RequestRefusedError as error:
        click.echo(f"genqueue: {shown(error.reason)}", err=True)
        sys.exit(EXIT_REFUSED)
    except ApiUnavailableError as error:
        click.echo(f"genqueue: {shown(error.reason)}", err=True)
        sys.exit(EXIT_UNAVAILABLE)


def _read(text: str) -> str:
    is_piped = text == "-"
    raw = sys.stdin.buffer.read() if is_piped else text.encode("utf-8", "surrogateescape")
    try:
        decoded = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"TEXT is not UTF-8 at byte {error.start}.") from error
    if "\0" in decoded:
        raise click.UsageError("TEXT contains a NUL.")
    return decoded


def _caller(context: click.Context, options: dict[str, Any]) -> Caller:
    from service.cli.callers import ApiCaller, StoreCaller  # noqa: PLC0415  # see submit

    settings: Settings = from_environment()
    url = options["url"] or settings.client_url
    key = options["key"] or settings.client_key
    if url:
        if not key:
            raise click.UsageError("an API needs a key: set GENQUEUE_KEY; see genqueue keys.")
        for name in ("org", "user"):
            if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} is for Redis; through the API the key says it.")
        return ApiCaller(url, key)
    if options["key"]:
        raise click.UsageError("--key goes with --url or GENQUEUE_URL.")
    for name in ("org", "user"):
        check_name(f"--{name}", options[name])
    return StoreCaller(build(settings), options["org"], options["user"])


def _print_receipt(receipt: Receipt, as_json: bool) -> None:
    if as_json:
        print_json({"job_id": receipt.job_id, "prompt_id": receipt.prompt_id, "state": "queued"})
    else:
        click.echo(f"Queued job {receipt.job_id} of prompt {receipt.prompt_id}.")


def _wait(caller: Caller, receipt: Receipt, within_s: float | None, as_json: bool) -> None:
    try:
        look = _until_ended(caller, receipt, within_s)
    except KeyboardInterrupt:
        click.echo(f"\nThe job goes on: genqueue job-details {receipt.job_id}", err=True)
        sys.exit(EXIT_INTERRUPTED)
    text = caller.answer(receipt) if look.state is State.SUCCEEDED else None
    if as_json:
        print_json(
            {
                "job_id": receipt.job_id,
                "prompt_id": receipt.prompt_id,
                "state": look.state.value,
                "attempt": look.attempt,
                "text": text,
                "error_kind": look.error_kind if text is None else None,
                "error_message": look.error_message if text is None else None,
            }
        )
    elif text is not None:
        click.echo(shown_block(text))
    elif look.has_ended:
        why = f": {look.error_kind}, {shown(look.error_message or '')}" if look.error_kind else ""
        click.echo(f"Job {receipt.job_id} {look.state}{why}", err=True)
    else:
        click.echo(f"Job {receipt.job_id} is still {_doing(look)}; it goes on.", err=True)
    if text is None:
        sys.exit(EXIT_FAILED)


def _until_ended(caller: Caller, receipt: Receipt, within_s: float | None) -> Look:
    """Look until the job has ended, or the time is over; progress goes to standard error."""
    until_s = None if within_s is None else time.monotonic() + within_s
    pause_s, told = POLL_FIRST_S, ""
    screen = console(stderr=True)
    with screen.status(f"job {receipt.job_id}") as status:
        while True:
            look = caller.look(receipt)
            doing = _doing(look)
            status.update(f"job {receipt.job_id}: {doing}")
            if doing != told and not screen.is_terminal:
                click.echo(f"job {receipt.job_id}: {doing}", err=True)
            told = doing
            left_s = pause_s if until_s is None else min(pause_s, until_s - time.monotonic())
            if look.has_ended or left_s <= 0:
                return look
            time.sleep(left_s)
            pause_s = min(POLL_MAX_S, pause_s * 1.3)


def _doing(look: Look) -> str:
    text: str = look.state.value
    if look.waiting_on:
        text += f", waits on {look.waiting_on}"
    return f"{text}, attempt {look.attempt}" if look.attempt > 1 else text
