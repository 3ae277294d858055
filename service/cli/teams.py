"""How are teams and their tokens made and seen from a shell? (B2, B17)"""

from __future__ import annotations

import sys
from typing import Any, Final

import click
from redis import Redis

from jobs.domain.errors import TeamExistsError, TeamMissingError
from jobs.runtime import Runtime, build
from jobs.store.credits import CreditRow
from jobs.store.flags import WORKFLOWS_LLM_ACTION, Flags
from jobs.store.teams import Team, Teams
from service.cli.dollars import DOLLARS, dollars
from service.cli.orgs import balance_view
from service.cli.output import as_json_option, heading, print_fields, print_json, print_table
from service.instants import rfc3339

ROWS_SHOWN: Final = 20


@click.group()
def teams() -> None:
    """Make and see teams, which generate texts for workflows, and their tokens.

    \b
    Example: genqueue teams create 1 --org acme --enable --credits 5
    """


@teams.command()
@click.argument("team")
@click.option("--org", required=True, help="The organisation that pays.")
@click.option("--enable", is_flag=True, help=f"Give the org the feature {WORKFLOWS_LLM_ACTION}.")
@click.option("--credits", "cap", type=DOLLARS, help="Let the org spend so many dollars in all.")
@as_json_option
def create(team: str, org: str, enable: bool, cap: int | None, as_json: bool) -> None:
    """Make the team TEAM and print its first token, once: only a hash of it is stored.

    TEAM is what stands in the address of its routes, unique over all organisations. A
    generation needs the feature and credits of the org, on the mock too. --credits sets the cap
    of an org that has none; one that is set is changed by genqueue orgs credits.

    \b
    Example: genqueue teams create 1 --org acme --enable --credits 5
    """
    runtime = build()
    if cap is not None:
        _refuse_second_cap(runtime, team, org)
    try:
        made = Teams(runtime.redis).create(team, org)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except TeamExistsError as error:
        click.echo(f"{error}; see genqueue teams token.", err=True)
        sys.exit(1)
    if enable:
        Flags(runtime.redis).enable(WORKFLOWS_LLM_ACTION, org)
    if cap is not None:
        runtime.credits.set_cap(org, cap)
    if not as_json:
        _say_what_the_org_got(org, cap, enable=enable)
    _print_token(runtime, made, as_json=as_json)


@teams.command()
@click.argument("team")
@as_json_option
def token(team: str, as_json: bool) -> None:
    """Make a further token of TEAM and print it, once; end one by genqueue keys revoke.

    \b
    Example: genqueue teams token 1
    """
    runtime = build()
    _print_token(runtime, _team_or_exit(runtime.redis, team), as_json=as_json)


@teams.command("list")
@click.option("--org", help="Only teams of this organisation.  [default: all]")
@as_json_option
def list_teams(org: str | None, as_json: bool) -> None:
    """List teams by their id.

    \b
    Example: genqueue teams list --org acme
    """
    views = [_view(team) for team in Teams(build().redis).list(org)]
    if as_json:
        print_json(views)
        return
    rows = [[str(view[name]) for name in ("team", "org", "created_at")] for view in views]
    print_table(("team id", "org", "created"), rows, empty="There are no teams.")


@teams.command()
@click.argument("team")
@click.option(
    "--rows",
    type=click.IntRange(0, 10_000),
    default=ROWS_SHOWN,
    show_default=True,
    help="Most rows of the ledger.",
)
@as_json_option
def show(team: str, rows: int, as_json: bool) -> None:
    """Show TEAM: its org, whether it may generate, what it used, its ledger, newest first.

    \b
    Example: genqueue teams show 1
    """
    runtime = build()
    found = _team_or_exit(runtime.redis, team)
    is_on = Flags(runtime.redis).is_on(WORKFLOWS_LLM_ACTION, found.org_id)
    used = runtime.credits.of_team(team)
    ledger = runtime.credits.ledger(team, rows) if rows else []
    if as_json:
        credits_used = balance_view(used)
        # The cap is the organisation's.
        del credits_used["cap_usd_micros"]
        told = [{"at": rfc3339(row.at_ms), **row.event} for row in ledger]
        flags = {WORKFLOWS_LLM_ACTION: is_on}
        print_json({**_view(found), "flags": flags, "credits": credits_used, "ledger": told})
        return
    print_fields(
        [
            ("team", found.team_id),
            ("org", found.org_id),
            ("created", rfc3339(found.created_at_ms)),
            (WORKFLOWS_LLM_ACTION, "on" if is_on else "off"),
            ("spent", dollars(used.spent_usd_micros)),
            ("reserved", dollars(used.reserved_usd_micros)),
            ("unsettled", dollars(used.unsettled_usd_micros)),
        ]
    )
    heading("Ledger")
    print_table(
        ("at", "generation id", "what", "pass", "model", "tokens in", "tokens out", "cost"),
        [_ledger_cells(row) for row in ledger],
        empty="Nothing was booked.",
    )


def _refuse_second_cap(runtime: Runtime, team: str, org: str) -> None:
    """End where `org` has a cap already. A team that is there is told of first, by who makes it."""
    held = runtime.credits.of_org(org).cap_usd_micros
    if held is None:
        return
    try:
        Teams(runtime.redis).get(team)
    except TeamMissingError:
        click.echo(
            f"org {org} has a cap of {dollars(held)} already; see genqueue orgs credits {org}.",
            err=True,
        )
        sys.exit(1)


def _say_what_the_org_got(org: str, cap: int | None, *, enable: bool) -> None:
    if enable:
        click.echo(f"Org {org} has the feature {WORKFLOWS_LLM_ACTION} now.")
    if cap is not None:
        click.echo(f"Org {org} may spend {dollars(cap)} in all now.")


def _team_or_exit(redis: Redis, team: str) -> Team:
    try:
        return Teams(redis).get(team)
    except TeamMissingError as error:
        click.echo(f"{error}; see genqueue teams list.", err=True)
        sys.exit(1)


def _print_token(runtime: Runtime, team: Team, *, as_json: bool) -> None:
    credential, made = runtime.credentials.create_for_team(team.team_id, team.org_id)
    if as_json:
        print_json({**_view(team), "key_id": credential.key_id, "token": made})
        return
    click.echo(
        f"Token {credential.key_id} of team {team.team_id}, org {team.org_id}."
        " It is shown only now:"
    )
    click.echo(made)


def _view(team: Team) -> dict[str, Any]:
    return {
        "team": team.team_id,
        "org": team.org_id,
        "created_at": rfc3339(team.created_at_ms),
    }


def _ledger_cells(row: CreditRow) -> list[str]:
    """A row for people; what an event does not say is left empty."""
    told = row.event.get("properties", {})
    usd, held = told.get("$ai_total_cost_usd"), told.get("usd_micros")
    if held is not None:
        is_over = row.event.get("event") == "credits_written_off"
        cost = f"{dollars(held)} {'written off' if is_over else 'unsettled'}"
    else:
        cost = "unknown" if usd is None else dollars(round(usd * 1_000_000))
    names = ("pass", "$ai_model", "$ai_input_tokens", "$ai_output_tokens")
    return [
        rfc3339(row.at_ms),
        _text(told.get("generation_id")),
        _text(row.event.get("event")),
        *(_text(told.get(name)) for name in names),
        cost,
    ]


def _text(value: object) -> str:
    return "" if value is None else str(value)
