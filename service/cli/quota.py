"""How many jobs may an organisation run at once, and how is that set from a shell? (A31)"""

from __future__ import annotations

import click

from jobs.runtime import build
from jobs.store.quotas import Quota, Quotas
from service.cli.jobs import check_name
from service.cli.output import as_json_option, print_json, print_table


@click.command()
@click.argument("org", required=False)
@click.argument("most", required=False, type=click.IntRange(0, 1_000_000))
@click.option("--none", "lift", is_flag=True, help="Lift the limit.")
@as_json_option
def quota(org: str | None, most: int | None, lift: bool, as_json: bool) -> None:
    """Show the quotas of running jobs, or let at most MOST jobs of ORG run at once.

    What runs already goes on; 0 stops an organisation's claims. Others are not affected.

    \b
    Example: genqueue quota acme 5
    Example: genqueue quota acme --none
    """
    if org is not None:
        check_name("ORG", org)
    if lift and (org is None or most is not None):
        raise click.UsageError("--none goes with ORG and without a number.")
    runtime = build()
    is_change = org is not None and (lift or most is not None)
    if org is not None and is_change and runtime.upkeep.set_quota(org, most):
        runtime.tickets.issue()
    quotas = Quotas(runtime.redis)
    found = quotas.all() if org is None else [quotas.of(org)]
    if as_json:
        print_json([_view(one) for one in found] if org is None else _view(found[0]))
        return
    print_table(
        ("org", "most running jobs", "running now"),
        [
            (one.org_id, "no limit" if one.most is None else str(one.most), str(one.running))
            for one in found
        ],
        empty="There are no quotas.",
    )


def _view(one: Quota) -> dict[str, str | int | None]:
    return {"org": one.org_id, "most": one.most, "running": one.running}
