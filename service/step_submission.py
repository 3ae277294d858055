"""What does a request ask a step to do, can it be done, and how is it stored? (B24, B25, B29)"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from werkzeug.exceptions import NotFound

from jobs import logs
from jobs.delivery.address_guard import Network
from jobs.domain.canonical_json import canonical_json
from jobs.domain.step import OnError, StepMode
from jobs.domain.step_variables import VariableRow, problems, rows_for
from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from jobs.store.steps import NewStep, StepView
from service.body import shown
from service.errors import FieldError, PayloadInvalidError
from service.submission import issue_ticket
from service.target_urls import url_problems


@dataclass(frozen=True, slots=True)
class StepSubmission:
    """A checked body of a submit. `prompt` is the template, `globals` what it may refer to; the
    names of `globals.variables` are the workflow's declared variables."""

    invocation_id: str
    prompt: str
    model: str
    hog_flow_id: str | None = None
    output_fields: Mapping[str, str] = field(default_factory=dict)
    globals: Mapping[str, Any] = field(default_factory=dict)
    output_variable: tuple[VariableRow, ...] = ()
    on_error: OnError = OnError.ABORT
    mode: StepMode = StepMode.LIVE
    callback_url: str | None = None

    @property
    def variables(self) -> Mapping[str, Any]:
        """The workflow's variables with their values at this step."""
        variables: Mapping[str, Any] = self.globals.get("variables", {})
        return variables

    def payload_hash(self) -> str:
        """Hex SHA-256 of the canonical JSON: the same however the body was spelled (X4), and where
        nobody is called back the same as before there were callbacks."""
        payload = asdict(self)
        if self.callback_url is None:
            del payload["callback_url"]
        return hashlib.sha256(canonical_json(payload)).hexdigest()


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step that can be run: its prompt rendered, with a row for each of its fields (B25)."""

    submission: StepSubmission
    prompt: str
    rows: tuple[VariableRow, ...]


@dataclass(frozen=True, slots=True)
class AcceptedStep:
    """A stored step; `replayed` where an earlier submit made it."""

    view: StepView
    replayed: bool


def prepare(submission: StepSubmission, networks: Sequence[Network]) -> PreparedStep:
    """Render the prompt and complete the rows. Raises PayloadInvalidError with all that is wrong
    with the template, which is told with its line, with the rows, and with the URL to call back;
    `networks` are those where that may lead beside the public ones (X12)."""
    found = [
        FieldError(_place(path), reason)
        for path, reason in problems(
            submission.output_variable, submission.output_fields, submission.variables
        )
    ]
    found += url_problems("callback_url", submission.callback_url, networks)
    # A tenth of a second and more to import, which most web processes never need.
    from jobs.liquid_prompt import PromptTemplateError, render  # noqa: PLC0415  # see above

    prompt = ""
    try:
        prompt = render(submission.prompt, submission.globals)
    except PromptTemplateError as error:
        found.insert(0, FieldError("inputs.prompt", str(error)))
    else:
        if not prompt.strip():
            found.insert(0, FieldError("inputs.prompt", "is empty once its values are filled in"))
    if found:
        raise PayloadInvalidError(found)
    return PreparedStep(
        submission, prompt, rows_for(submission.output_fields, submission.output_variable)
    )


def accept_step(
    runtime: Runtime, identity: Identity, step: PreparedStep, key: str | None
) -> AcceptedStep:
    """Store the step and its job in one round trip, then a ticket if one is wanted.

    `key` is the client's Idempotency-Key, which counts among those of the team's steps alone.
    Raises IdempotencyKeyReusedError and StoreUnavailableError; werkzeug's NotFound where the key
    names a step that is archived by now.
    """
    assert identity.team_id is not None
    asked = step.submission
    logs.bind(team=identity.team_id, invocation_id=asked.invocation_id)
    submitted = runtime.steps.submit(
        NewStep(
            id=str(uuid.uuid4()),
            prompt_id=str(uuid.uuid4()),
            team_id=identity.team_id,
            org_id=identity.org_id,
            invocation_id=asked.invocation_id,
            hog_flow_id=asked.hog_flow_id,
            prompt=step.prompt,
            model=asked.model,
            output_fields=asked.output_fields,
            rows=step.rows,
            variables=asked.variables,
            on_error=asked.on_error,
            # A client's own keys have no spaces: those of prompts are others.
            idempotency_key=f"step of {identity.team_id}: {key}" if key else None,
            payload_hash=asked.payload_hash() if key else "",
            callback_url=asked.callback_url,
        )
    )
    logs.bind(job_id=submitted.step_id)
    if submitted.ticket_wanted:
        issue_ticket(runtime, submitted.step_id)
    view = runtime.steps.get(submitted.step_id, identity.team_id)
    if view is None:
        raise NotFound
    return AcceptedStep(view, submitted.replayed)


def _place(path: str) -> str:
    """Where in the body something is: a caller's own name is shown short."""
    head, _, name = path.partition(".")
    return f"inputs.{head}.{shown(name)}" if head == "output_fields" else path
