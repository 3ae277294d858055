"""How does a step reach the generations of its own deployment? The short way, by the store. (B30)

The same gates, the same records, the same answers as over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable

from jobs.domain.errors import FeatureUnavailableError, GenerationMissingError, ThrottledError
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.step import Answer, Ended, Pending, Result, StepRequest, Throttled
from jobs.generation_client import GONE
from jobs.generation_intake import GenerationSubmission, Intake
from jobs.store.generations import FAILED, PENDING, Generations, GenerationView


class LocalGenerationClient:
    """Submits and collects in this process. Raises StoreUnavailableError."""

    def __init__(
        self, intake: Intake, generations: Generations, issue_ticket: Callable[[], None]
    ) -> None:
        self._intake = intake
        self._generations = generations
        self._issue_ticket = issue_ticket

    def submit(self, request: StepRequest) -> Answer:
        """What a submit over HTTP would have been answered (B5)."""
        submission = GenerationSubmission(
            invocation_id=request.invocation_id,
            prompt=request.prompt,
            model=request.model,
            hog_flow_id=request.hog_flow_id,
            output_fields=request.output_fields,
            wake_token=request.wake_token,
        )
        try:
            accepted = self._intake.submit(request.team_id, request.org_id, submission)
        except ThrottledError as error:
            return Throttled(error.retry_after_s)
        except FeatureUnavailableError:
            code = GenerationCode.FEATURE_UNAVAILABLE
            return Ended(code, COPY[code])
        if accepted.ticket_wanted:
            self._issue_ticket()
        return _answer(accepted.view)

    def retrieve(self, team_id: str, generation_id: str) -> Answer:
        """What became of it by now; a record that is gone has nothing to give any more."""
        try:
            return _answer(self._generations.get(generation_id, team_id))
        except GenerationMissingError:
            code = GenerationCode.GATEWAY_UNAVAILABLE
            return Ended(code, GONE)


def _answer(view: GenerationView) -> Answer:
    if view.status == PENDING:
        return Pending(view.id)
    if view.status == FAILED or view.result is None:
        code = view.code or GenerationCode.GATEWAY_UNAVAILABLE
        return Ended(code, view.message or COPY[code])
    return Result(view.id, view.result)
