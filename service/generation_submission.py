"""How does a request become a generation, logged as part of its run? (B3, B17)"""

from __future__ import annotations

from jobs import logs
from jobs.generation_intake import GenerationSubmission
from jobs.runtime import Runtime
from jobs.store.credentials import Identity
from jobs.store.generations import GenerationView
from service.errors import PayloadInvalidError
from service.submission import issue_ticket
from service.target_urls import url_problems


def accept_generation(
    runtime: Runtime, identity: Identity, submission: GenerationSubmission
) -> GenerationView:
    """Take it in, then issue a ticket if one is wanted. Raises PayloadInvalidError where nothing
    could be posted to the URL of its wake (X12), and what `Intake.submit` does."""
    assert identity.team_id is not None
    problems = url_problems("wake.url", submission.wake_url, runtime.settings.webhook_networks)
    if problems:
        raise PayloadInvalidError(problems)
    # One trace spans the run with all its steps (B17).
    logs.bind(team=identity.team_id, invocation_id=submission.invocation_id)
    accepted = runtime.intake.submit(identity.team_id, identity.org_id, submission)
    logs.bind(job_id=accepted.view.id)
    if accepted.ticket_wanted:
        issue_ticket(runtime, accepted.view.id)
    return accepted.view
