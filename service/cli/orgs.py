"""What may an organisation use, and what may it spend? Seen and set from a shell. (B17, B21)"""

from __future__ import annotations

from typing import Any

import click

from jobs.runtime import Runtime, build
from jobs.store.credits import CreditBalance
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.teams import Teams
from service.cli.dollars import DOLLARS, dollars
from service.cli.jobs import check_name
from service.cli.output import as_json_option, print_fields, print_json, shown


@click.group()
def orgs() -> None:
    """See and set what an organisation may use and spend.

    \b
    Example: genqueue orgs credits acme --cap 25
    """


@orgs.command()
@click.argument("org")
@click.argument("flag", default=WORKFLOWS_LLM_ACTION)
@click.option("--on/--off", "turn_on", default=None, help="Give the feature, or take it away.")
@as_json_option
def flag(org: str, flag: str, turn_on: bool | None, as_json: bool) -> None:
    """Show whether ORG has the feature FLAG, or switch it.

    Off, nothing new is accepted; what was accepted before completes and can be collected.

    \b
    Example: genqueue orgs flag acme --on
    """
    check_name("ORG", org)
    runtime = build()
    flags = Flags(runtime.redis)
    try:
        if turn_on is True:
            flags.enable(flag, org)
        elif turn_on is False:
            flags.disable(flag, org)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _warn_of_an_org_of_nobody(runtime, org)
    is_on = flags.is_on(flag, org)
    if as_json:
        print_json({"org": org, "flag": flag, "on": is_on})
        return
    click.echo(f"{flag} is {'on' if is_on else 'off'} for org {org}.")


@orgs.command()
@click.argument("org")
@click.option("--cap", type=DOLLARS, help="Let it spend so much in all, all time included.")
@click.option("--add", type=DOLLARS, help="Raise the cap by so much.")
@click.option("--no-cap", is_flag=True, help="Take the cap away, and with it all credits.")
@click.option("--write-off", is_flag=True, help="Count what is unsettled as not spent.")
@as_json_option
def credits(  # noqa: A001  # the command's name
    org: str, cap: int | None, add: int | None, no_cap: bool, write_off: bool, as_json: bool
) -> None:
    """Show the credits of ORG, or set them, in dollars.

    Reserved is held for generations that have not ended. Unsettled may have been spent: calls
    that broke off, of which nobody knows what they used; --write-off gives them back, to the org
    and in the figures of its teams. An org without a cap has no credits.

    \b
    Example: genqueue orgs credits acme --cap 25
    Example: genqueue orgs credits acme --add 0.5
    """
    check_name("ORG", org)
    if (cap is not None) + (add is not None) + no_cap > 1:
        raise click.UsageError("--cap, --add and --no-cap exclude each other.")
    runtime = build()
    store = runtime.credits
    if cap is not None or no_cap:
        store.set_cap(org, cap)
    if add is not None:
        store.add(org, add)
    if write_off:
        team_ids = [team.team_id for team in Teams(runtime.redis).list(org)]
        written_off = store.write_off(org, team_ids)
        click.echo(f"Wrote off {dollars(written_off)}.", err=True)
    _warn_of_an_org_of_nobody(runtime, org)
    balance = store.of_org(org)
    if as_json:
        print_json(
            {"org": org, **balance_view(balance), "left_usd_micros": balance.left_usd_micros}
        )
        return
    print_fields(
        [
            ("org", org),
            ("cap", _shown_cap(balance)),
            ("spent", dollars(balance.spent_usd_micros)),
            ("reserved", dollars(balance.reserved_usd_micros)),
            ("unsettled", dollars(balance.unsettled_usd_micros)),
            ("left", dollars(balance.left_usd_micros)),
        ]
    )


def _warn_of_an_org_of_nobody(runtime: Runtime, org: str) -> None:
    """Say so where a name may be misspelt: what is set for it waits for its first team."""
    is_known = bool(Teams(runtime.redis).list(org)) or any(
        credential.org_id == org for credential in runtime.credentials.list()
    )
    if not is_known:
        click.echo(f"No key and no team belongs to org {shown(org)} yet.", err=True)


def balance_view(balance: CreditBalance) -> dict[str, Any]:
    """A balance for programs, in micro-dollars."""
    return {
        "cap_usd_micros": balance.cap_usd_micros,
        "spent_usd_micros": balance.spent_usd_micros,
        "reserved_usd_micros": balance.reserved_usd_micros,
        "unsettled_usd_micros": balance.unsettled_usd_micros,
    }


def _shown_cap(balance: CreditBalance) -> str:
    cap = balance.cap_usd_micros
    return "none: no credits" if cap is None else dollars(cap)
