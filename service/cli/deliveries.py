"""How does an operator see what is posted, and send something again? Of all owners. (C17)"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import click

from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.domain.request_ids import request_id_of
from jobs.domain.states import Answer
from jobs.runtime import Runtime, build
from jobs.store.deliveries import LOOKED_AT_MAX, DeliveryTry, DeliveryView
from service.cli.jobs import as_request_job_id
from service.cli.moments import duration
from service.cli.output import (
    as_json_option,
    heading,
    print_fields,
    print_json,
    print_table,
    shown,
    state_cell,
)
from service.instants import rfc3339

_ID: Final = re.compile(r"[0-9A-Za-z-]{1,100}", re.ASCII)


@click.group(invoke_without_command=True)
@click.option(
    "--state",
    type=click.Choice([state.value for state in DeliveryState]),
    help="Only deliveries in this state.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LOOKED_AT_MAX),
    default=50,
    show_default=True,
    help="Most deliveries.",
)
@as_json_option
@click.pass_context
def deliveries(context: click.Context, state: str | None, limit: int, as_json: bool) -> None:
    """List what was posted to webhooks, channels and waiters, or is still to be, newest first;
    see one, or send it again.

    The newest 1,000 are looked at.

    \b
    Example: genqueue deliveries --state given_up
    """
    if context.invoked_subcommand is not None:
        return
    found = build().deliveries.recent(limit, DeliveryState(state) if state else None)
    if as_json:
        print_json([_dumped(view) for view in found])
        return
    print_table(
        ("delivery id", "owner", "kind", "state", "tries", "last", "created", "to"),
        [_row(view) for view in found],
        empty="There are no such deliveries.",
    )


@deliveries.command()
@click.argument("delivery_id")
@as_json_option
def show(delivery_id: str, as_json: bool) -> None:
    """Show a delivery and its newest 20 tries; DELIVERY_ID is the webhook-id of its posts, or the
    id of the chat request whose outcome it posts, req_….

    \b
    Example: genqueue deliveries show 0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11
    """
    view = _find(build(), delivery_id)
    if as_json:
        print_json(_dumped(view))
        return
    print_fields(
        (
            ("delivery", view.id),
            ("kind", view.kind.value),
            ("state", state_cell(view.state.value)),
            ("owner", view.owner),
            ("user", view.user),
            ("of", _request_id(view) or view.ref),
            ("to", view.url),
            ("tries", str(view.tries)),
            ("created", rfc3339(view.created_at_ms)),
            ("due", _instant(view.due_at_ms)),
            ("gives up", "" if view.ended_at_ms else rfc3339(view.gives_up_at_ms)),
            ("ended", _instant(view.ended_at_ms)),
        )
    )
    if view.log:
        heading("Tries")
        print_table(("at", "answer", "took"), [_try_row(one) for one in view.log], empty="")


@deliveries.command()
@click.argument("delivery_id")
@as_json_option
def replay(delivery_id: str, as_json: bool) -> None:
    """Send a delivery again at once, whatever became of it: the same bytes under the same
    webhook-id, for a fresh day of tries. A wake that has ended is not sent again. DELIVERY_ID may
    be the id of a chat request, req_….

    \b
    Example: genqueue deliveries replay 0b3f1c9e-8a52-4a0b-9d1e-5b8f7f3a2c11
    """
    runtime = build()
    view = _find(runtime, delivery_id)
    answer = runtime.deliveries.replay(view.id, view.owner, view.user)
    if answer is Answer.MISSING:
        _refuse(f"Delivery {view.id} is gone: its time was over.")
    if answer is not Answer.OK:
        _refuse(f"Delivery {view.id} is a wake that has ended ({view.state}): nobody waits for it.")
    runtime.delivery_tickets.issue()
    if as_json:
        print_json(_dumped(_find(runtime, view.id)))
    else:
        click.echo(f"Delivery {view.id}, which was {view.state}, is sent again.")


def _find(runtime: Runtime, delivery_id: str) -> DeliveryView:
    """The delivery of any owner; ends the process with status 1 where there is none."""
    known = as_request_job_id(delivery_id) or delivery_id
    view = runtime.deliveries.find(known) if _ID.fullmatch(known) else None
    if view is None:
        _refuse(f"There is no delivery {shown(delivery_id)}; see genqueue deliveries.")
    return view


def _row(view: DeliveryView) -> Sequence[Any]:
    parts = urlsplit(view.url)
    return (
        view.id,
        view.owner,
        view.kind.value,
        state_cell(view.state.value),
        str(view.tries),
        view.log[0].entry if view.log else "",
        rfc3339(view.created_at_ms),
        f"{parts.scheme}://{parts.netloc}",
    )


def _try_row(one: DeliveryTry) -> Sequence[str]:
    took = "" if one.took_ms is None else duration(one.took_ms)
    return (rfc3339(one.at_ms), one.entry, took)


def _instant(at_ms: int | None) -> str:
    return "" if at_ms is None else rfc3339(at_ms)


def _request_id(view: DeliveryView) -> str | None:
    """The chat request whose outcome is posted; None for a wake."""
    return None if view.kind is DeliveryKind.WAKE else request_id_of(view.ref)


def _dumped(view: DeliveryView) -> Any:
    # Imported late: the schemas cost a third of a second.
    from service.schemas.deliveries import OperatorDeliverySchema  # noqa: PLC0415  # see above

    return {**OperatorDeliverySchema().dump(view), "request_id": _request_id(view)}


def _refuse(text: str) -> NoReturn:
    click.echo(text, err=True)
    sys.exit(1)
