"""How does a request answer that waited for its job? With the result, or its receipt after all."""

from __future__ import annotations

from http import HTTPStatus

from flask import Response, jsonify, request

from jobs.domain.errors import StoreUnavailableError
from jobs.runtime import Runtime
from service.client_socket import ClientSocket
from service.context import current_fanout, current_identity, current_runtime
from service.job_views import show_view
from service.schemas.prompts import Finished, FinishedSchema, stored_response
from service.waiting import Preferences, wait_for_end


def answer_when_ended(
    job_id: str, held_s: int, preferences: Preferences, headers: dict[str, str]
) -> Response | None:
    """Hold this request until the job has ended, `held_s` seconds at most, and answer 200 with
    its result; None where the receipt is to be answered, by whatever reason.

    Adds to `headers`, also for the receipt, which preference was honoured.
    """
    runtime, identity = current_runtime(), current_identity()
    ended: bool | None = False
    if held_s:
        ended = wait_for_end(
            current_fanout(),
            runtime.listing,
            org_id=identity.org_id,
            job_id=job_id,
            within_s=held_s,
            is_gone=ClientSocket(request.environ).is_gone,
        )
    if preferences.wait_s is not None and ended is not None:
        headers["Preference-Applied"] = f"wait={preferences.wait_s}"
    elif preferences.respond_async and not ended:
        headers["Preference-Applied"] = "respond-async"
    finished = _finished(runtime, job_id, identity.org_id) if ended else None
    if finished is None:
        return None
    answer = jsonify(FinishedSchema().dump(finished))
    answer.status_code = HTTPStatus.OK
    answer.headers.update(headers)
    return answer


def _finished(runtime: Runtime, job_id: str, org_id: str) -> Finished | None:
    """The job and its own response; None where it can't be read now: its receipt still can."""
    try:
        view = runtime.records.job(job_id, org_id)
        prompt = view and runtime.records.prompt(view.job.prompt_id, org_id)
        if not view or not prompt:
            return None
        response = stored_response(prompt)
        if response is not None and response.response.id != view.job.response_id:
            response = None
        return Finished(show_view(runtime.records, view), response)
    except StoreUnavailableError:
        return None
