"""How is money typed and printed? Decimal dollars outside, whole micro-dollars inside."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Final

import click

MOST_DOLLARS: Final = 1_000_000_000
_USD: Final = re.compile(r"\$?(\d{1,10}(?:\.\d{1,6})?)", re.ASCII)


class Dollars(click.ParamType[int]):
    """An amount in dollars with at most 6 decimals, exact; micro-dollars inside."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The amount in micro-dollars; a usage error for what is none."""
        if isinstance(value, int):
            return value
        found = _USD.fullmatch(str(value))
        if found is None or Decimal(found[1]) > MOST_DOLLARS:
            self.fail(
                f"{value!r} is no amount from 0 to {MOST_DOLLARS} dollars with at most 6 decimals,"
                " as 25 or 0.5",
                param,
                ctx,
            )
        return int(Decimal(found[1]) * 1_000_000)


DOLLARS: Final = Dollars()


def dollars(usd_micros: int) -> str:
    """The amount with 2 to 6 decimals, nothing rounded: `$0.50`, `$0.000213`."""
    whole, micros = divmod(usd_micros, 1_000_000)
    decimals = f"{micros:06d}".rstrip("0").ljust(2, "0")
    return f"${whole}.{decimals}"
