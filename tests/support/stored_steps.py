"""What does an ordinary step of a workflow look like in a test?"""

from __future__ import annotations

from jobs.domain.step import OnError
from jobs.domain.step_variables import VariableRow
from jobs.store.steps import NewStep
from tests.support.factories import new_id


def new_step(**changes: object) -> NewStep:
    values: dict[str, object] = {
        "id": new_id(),
        "prompt_id": new_id(),
        "team_id": "1",
        "org_id": "acme",
        "invocation_id": "run-1",
        "hog_flow_id": None,
        "prompt": "Write to Ada.",
        "model": "mock-1",
        "output_fields": {"subject": "A subject."},
        "rows": (VariableRow("subject", "fields.subject"),),
        "variables": {"subject": "", "name": "Ada"},
        "on_error": OnError.ABORT,
    }
    return NewStep(**{**values, **changes})  # type: ignore[arg-type]
