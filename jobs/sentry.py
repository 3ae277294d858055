"""How do errors reach Sentry, and what of them may leave the house? (X10)

Sent are: type and stack of an exception, the template of a log line, method and route of a
request, and ids. Never sent are bodies, headers, query strings, local variables, and the texts
of exceptions that may quote content (see jobs.logs); whatever looks like a key is cut out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from jobs import logs

if TYPE_CHECKING:
    from sentry_sdk.integrations import Integration
    from sentry_sdk.types import Breadcrumb, Event, Hint

FLUSH_S: Final = 2
"""The end of a process waits no longer than this for what was not sent yet."""

_TEXTS_OF: Final = ("jobs.", "service.", "scheduler.")
_FIELDS_OF_REQUEST: Final = ("method",)


def start(dsn: str, settings: logs.LogSettings, integrations: Sequence[Integration]) -> None:
    """Send this process's errors to `dsn`; call it after any fork and after `logs.configure`.

    Log lines of level error and above become events, lower ones the trail that leads there.
    """
    import sentry_sdk  # noqa: PLC0415  # costs 0.1 s, for nothing where there is no DSN
    from sentry_sdk.integrations.atexit import AtexitIntegration  # noqa: PLC0415  # as above

    scrub = _Scrub(logs.scrubber_of(settings))
    sentry_sdk.init(
        dsn=dsn,
        # The integrations that enable themselves record prompts; those named here do not.
        auto_enabling_integrations=False,
        integrations=[*integrations, AtexitIntegration(callback=lambda _pending, _wait_s: None)],
        send_default_pii=False,
        include_local_variables=False,
        max_request_body_size="never",
        auto_session_tracking=False,
        shutdown_timeout=FLUSH_S,
        before_send=scrub.event,
        before_breadcrumb=scrub.breadcrumb,
    )


class _Scrub:
    """Takes out of what is to be sent whatever may hold content or a key."""

    def __init__(self, scrub: logs.Scrubber) -> None:
        self._scrub = scrub

    def event(self, event: Event, hint: Hint) -> Event:
        """The event as it may be sent, tagged with the ids of what was running."""
        del hint
        request = event.get("request")
        if request:
            event["request"] = {
                name: request[name] for name in _FIELDS_OF_REQUEST if name in request
            }
        for exception in event.get("exception", {}).get("values", ()):
            if not str(exception.get("module", "")).startswith(_TEXTS_OF):
                exception["value"] = ""
        event.pop("user", None)
        event.pop("_meta", None)  # type: ignore[typeddict-item]  # names what was cut out
        tags = {name: str(value) for name, value in logs.bound_fields().items()}
        event["tags"] = {**dict(event.get("tags") or {}), **tags}
        cleaned: Event = self._clean(event)
        return cleaned

    def breadcrumb(self, crumb: Breadcrumb, hint: Hint) -> Breadcrumb | None:
        """The step as it may be kept: its words, without the data that came along."""
        del hint
        crumb.pop("data", None)
        cleaned: Breadcrumb = self._clean(crumb)
        return cleaned

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._scrub(value)
        if isinstance(value, Mapping):
            return {name: self._clean(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(item) for item in value]
        return value
