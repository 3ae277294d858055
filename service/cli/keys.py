"""How are API keys made, seen and ended from a shell, and team tokens ended? (X12, B2)"""

from __future__ import annotations

import sys
from typing import Any

import click

from jobs.runtime import build
from jobs.store.credentials import CACHE_S, Credential
from service.cli.output import as_json_option, print_json, print_table
from service.instants import rfc3339


@click.group()
def keys() -> None:
    """Make, list and revoke API keys; list and revoke the tokens of teams.

    \b
    Example: genqueue keys create --org acme --user ann
    """


@keys.command()
@click.option("--org", required=True, help="The organisation whose jobs the key reaches.")
@click.option("--user", required=True, help="The user that jobs are made by.")
@as_json_option
def create(org: str, user: str, as_json: bool) -> None:
    """Make a key and print it, once: only a hash of it is stored.

    \b
    Example: genqueue keys create --org acme --user ann
    """
    try:
        credential, key = build().credentials.create(org, user)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json({**_view(credential), "key": key})
        return
    click.echo(f"Key {credential.key_id} of org {org}, user {user}. It is shown only now:")
    click.echo(key)


@keys.command("list")
@as_json_option
def list_keys(as_json: bool) -> None:
    """List all keys and tokens of teams, oldest first, without their secrets.

    \b
    Example: genqueue keys list --json
    """
    views = [
        {**_view(credential), "team": credential.team_id}
        for credential in build().credentials.list()
    ]
    if as_json:
        print_json(views)
        return
    names = ("key_id", "org", "user", "team", "created_at")
    rows = [[view[name] or "" for name in names] for view in views]
    print_table(("key id", "org", "user", "team", "created"), rows, empty="There are no keys.")


@keys.command()
@click.argument("key_id")
def revoke(key_id: str) -> None:
    """End the key or token with the id KEY_ID (the part between the underscores).

    \b
    Example: genqueue keys revoke 7k2m9x0q4h1z
    """
    if not build().credentials.revoke(key_id):
        click.echo(f"There is no key {key_id}; see genqueue keys list.", err=True)
        sys.exit(1)
    click.echo(f"Revoked key {key_id}. The API refuses it within {CACHE_S:.0f} s.")


def _view(credential: Credential) -> dict[str, Any]:
    return {
        "key_id": credential.key_id,
        "org": credential.org_id,
        "user": credential.user_id,
        "created_at": rfc3339(credential.created_at_ms),
    }
