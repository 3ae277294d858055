"""Which command runs the stack? `python -m service.stack`, behind `make run`."""

import contextlib
import sys
from pathlib import Path

import click

from jobs.domain.errors import SettingsInvalidError
from service.stack.environment import read_environment
from service.stack.errors import StackError, StopRequestedError
from service.stack.run import StackOptions, run_stack
from service.stack.stop_request import StopRequest

INTERRUPTED = 130


@click.command(context_settings={"show_default": True})
@click.option("--once", is_flag=True, help="End after the samples were answered.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port of the API.  [default: PORT or 8080]"
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("var"),
    help="Folder for Redis' data, the logs, the development key and token.",
)
def main(once: bool, port: int | None, data: Path) -> None:
    """Run Redis, the API and a worker on this machine, and show them answer a few samples.

    \b
    Example: python -m service.stack --port 9000 --once
    """
    request = StopRequest()
    request.listen()
    try:
        environment = read_environment()
        options = StackOptions(port=port or environment.port, data=data.absolute(), once=once)
        run_stack(options, environment, request, _say)
    except StopRequestedError as error:
        click.echo(str(error), err=True)
        sys.exit(INTERRUPTED)
    except (StackError, SettingsInvalidError, ValueError) as error:
        click.echo(f"genqueue: {error}", err=True)
        sys.exit(1)


def _say(text: str) -> None:
    # A closed terminal or pipe must not keep the stack from stopping in order.
    with contextlib.suppress(OSError):
        click.echo(text)


if __name__ == "__main__":
    main(prog_name="python -m service.stack")
