"""How do the routes of steps tell what is wrong? As those of generations, in words of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from flask import Response

from service.generation_refusals import refusal_response
from service.problems import Problem

_NO_PLACE: Final = (
    "Too many requests wait for a result here. Try again after Retry-After seconds; nothing was"
    " submitted."
)


def refusals_of(noun: str) -> Callable[[Problem], Response]:
    """What makes an answer of a problem, for routes whose ids name a `noun`."""

    def respond(problem: Problem) -> Response:
        if problem.slug == "not-found":
            problem = replace(problem, detail=f"There is no such {noun}.")
        elif problem.slug == "too-many-streams":
            problem = replace(problem, detail=_NO_PLACE)
        return refusal_response(problem)

    return respond
