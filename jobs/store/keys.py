"""Which keys are in Redis, of what type, and when do they end?

Every key is spelled here and nowhere else: Python calls the `Key`, the scripts get the same
spelling as the table `K` (see scripts.py), and ARCHITECTURE.md's key table is generated from
`ALL`. The hash tag keeps all of them in one slot of a Redis Cluster.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "{gq}:"

EVENTS_TTL_MS: Final = 3_600_000
"""An org's stream ends an hour after its last event (decision 14)."""

EVENTS_KEPT: Final = 20_000
"""About so many events an org's stream keeps; who reads on from an older one meets a gap."""

IDEMPOTENCY_TTL_MS: Final = 86_400_000
"""An idempotency record ends 24 h after its job did (X4)."""

TOMBSTONE_TTL_MS: Final = 30 * 86_400_000
"""For 30 days after its archiving a job's id answers that it is gone."""

BOOKED_TTL_MS: Final = 86_400_000

PENDING_TTL_MS: Final = 600_000
"""The record of a pending generation: longer than one waits and runs (B10)."""

SUCCESS_TTL_MS: Final = 600_000
FAILURE_TTL_MS: Final = 300_000

QUEUE_MOST_MS: Final = 90_000
"""A generation that waited so long is not collected any more: it ends unpaid (B11)."""

SLOT_TTL_MS: Final = 120_000
"""A slot that nobody frees ends so late: after the hard limit of its call (B18)."""

TOKENS_TTL_MS: Final = 60_000
"""The text of a streamed turn can be read so long after its last piece."""

TOKENS_KEPT: Final = 20_000

CAPTAINS_LOG_TTL_MS: Final = 90 * 86_400_000
LOG_REASONS_BYTES: Final = 4_000
"""No further reason is kept in a line that has so much: a line is shown in 1,000 characters."""


STEP_TTL_MS: Final = 86_400_000
"""A step can be read for a day after its end."""

WAKES_TTL_MS: Final = 600_000
WAKES_KEPT: Final = 10_000

DELIVERY_TTL_MS: Final = 30 * 86_400_000
"""A delivery can be read and replayed for 30 days after its end (C17)."""

WAKE_KEPT_MS: Final = 86_400_000
DELIVERY_TRIED_MS: Final = 86_400_000
"""A delivery that nobody took within a day is given up (C17), a wake within 10 minutes."""

WAKE_TRIED_MS: Final = 600_000
DELIVERY_LOG_KEPT: Final = 20
DELIVERIES_KEPT: Final = 10_000
"""So many deliveries are listed, the newest, of a user and in all."""

HEALTH_MS: Final = 86_400_000

CREDITS_LEDGER_KEPT: Final = 10_000
"""So many rows a team's ledger of credits keeps, the newest."""

BILLING_KEPT: Final = 100_000
"""Events that wait to be reported at most, about 60 MB. The oldest go first, since a receiver has
least use for them; of what they tell, credits and ledgers keep what was spent."""

GENERATION_BUCKETS_MS: Final = (
    *(100, 250, 500, 1_000, 2_500, 5_000),
    *(10_000, 20_000, 40_000, 60_000, 90_000),
)
"""Upper edges of the histograms of generations, in ms (B22)."""

MIRROR_KEPT: Final = 1_000
"""RQ's failed registry shows the newest failed jobs up to this many."""

CLAIM_TTL_MS: Final = 120_000
"""A claim can be repeated for two minutes: longer than a client re-sends."""

SCORE_SLOT: Final = 2**46
"""Scores of lanes are `priority * 2^46 + n`: 7 + 46 bits, exact in a double."""


@dataclass(frozen=True, slots=True)
class Key:
    """One family of keys. `spelling` holds one `%s` where the family has a member each."""

    name: str
    spelling: str
    type: str
    holds: str
    end: str

    def __call__(self, part: str = "") -> str:
        """The key itself; `part` fills the placeholder."""
        return PREFIX + (self.spelling % part if "%s" in self.spelling else self.spelling)


SEQ = Key("seq", "seq", "string", "number of the last event; also a job's place", "never")
TURN = Key("turn", "turn", "string", "number of the last turn given to a lane", "never")
SWEPT_AT = Key("swept_at", "swept_at", "string", "ms of the last reclaim sweep", "never")
CLAIMED_AT = Key(
    "claimed_at", "claimed_at", "string", "ms of the last claim that found lanes", "never"
)

JOB = Key("job", "job:%s", "hash", "the record, fields of at most 64 bytes", "archive")
OPTIONS = Key("options", "job:%s:options", "string", "execution_options as JSON", "archive")
ERROR = Key("error", "job:%s:error", "string", "error_message", "archive")
HISTORY = Key(
    "history", "job:%s:history", "list", "seq|at_ms|verb|from|to|attempt|reason", "archive"
)
DEPENDENTS = Key("dependents", "job:%s:dependents", "set", "jobs that wait for it", "its end")
TOMBSTONE = Key("tombstone", "job:%s:gone", "string", "org|state|finished_at in ms", "30 d")
PROMPT = Key("prompt", "prompt:%s", "hash", "the prompt entity, without its text", "archive")
METADATA = Key("metadata", "prompt:%s:metadata", "string", "the caller's JSON", "archive")
REPLACED = Key("replaced", "prompt:%s:replaced", "list", "superseded jobs, oldest first", "archive")
EDGES = Key("edges", "prompt:%s:edges", "list", "from|type|to", "archive")
LEDGER = Key("ledger", "prompt:%s:ledger", "list", "at_ms|job|attempt|usage JSON", "archive")
AUDIT = Key("audit", "prompt:%s:audit", "list", "at_ms|verb|job|attempt|detail", "archive")
RESPONSE = Key("response", "response:%s", "hash", "the response entity, without text", "archive")
TEXT = Key("text", "text:%s", "string", "text of a prompt or response", "archive")

BOOKED = Key("booked", "booked:%s", "string", "a late call was booked", "1 d")

READY = Key("ready", "ready:%s", "zset", "a lane: job by priority * 2^46 + seq", "empty")
TURNS = Key("turns", "turns", "zset", "open lanes by head priority * 2^46 + turn", "empty")
TEAM_LANES = Key("team_lanes", "lanes:%s", "set", "a team's non-empty lanes", "empty")
SHUT = Key("shut", "shut:%s", "zset", "lanes behind a shut gate, scored as in turns", "empty")
SHUT_BY = Key("shut_by", "shut_by", "hash", "lane to the gate that shut it", "empty")
GATES = Key("gates", "gates", "set", "gates that have lanes behind them", "empty")
SCHEDULED = Key("scheduled", "scheduled", "zset", "job by run_at in ms", "empty")
BLOCKED = Key("blocked", "blocked", "zset", "job that waits for another, by seq", "empty")
RELEASED = Key("released", "released", "set", "ended jobs that others wait for", "empty")
RUNNING = Key("running", "running", "zset", "job by end of its lease in ms", "empty")
RUNNING_BY_ORG = Key("running_by_org", "running_by_org", "hash", "org to running jobs", "empty")
QUOTAS = Key("quotas", "quotas", "hash", "org to its most running jobs", "operator")

CLAIM = Key("claim", "claim:%s", "list", "jobs or deliveries taken under a token", "2 min")
IDEMPOTENCY = Key(
    "idempotency", "idem:%s", "string", "payload hash|job|prompt", "24 h after the job's end"
)
GENERATION = Key(
    "generation", "generation:%s", "hash", "its answer, also to resubmits", "10 min, failed 5 min"
)
GENERATION_OF = Key(
    "generation_of", "generation_of:%s", "string", "digest of a submit to its generation", "with it"
)
WAITERS = Key("waiters", "generation:%s:waiters", "set", "wake tokens, some with URL, 16", "10 min")
WAKES = Key("wakes", "wakes", "stream", "ended generations with their waiters", "10 min")
STEP = Key("step", "step:%s", "hash", "how far a step came", "1 d after its end")
STEP_INPUTS = Key("step_inputs", "step:%s:inputs", "string", "its inputs as JSON", "with it")
STEP_LOG = Key("step_log", "step:%s:log", "string", "its run log as JSON, 10 lines", "with it")
STEP_RESULT = Key("step_result", "step:%s:result", "string", "what came of it, JSON", "with it")
REQUEST = Key(
    "request", "request:%s", "hash", "a chat turn: whose, how far, how it ended", "archive"
)
REQUEST_PLAN = Key(
    "request_plan", "request:%s:plan", "string", "plan of the attempt that runs, JSON", "its end"
)
REQUEST_TARGET = Key(
    "request_target", "request:%s:target", "string", "where its outcome is posted", "archive"
)
REQUEST_ATTEMPTS = Key(
    "request_attempts", "request:%s:attempts", "list", "failed attempts as JSON", "archive"
)
REQUEST_NOTE = Key(
    "request_note", "request:%s:note", "string", "detail of its end, or its question", "archive"
)
TOKENS = Key("tokens", "request:%s:tokens", "stream", "text of a turn as it is written", "1 min")
CAPTAINS_LOG = Key(
    "captains_log",
    "captains_log:%s",
    "list",
    "at_ms|request|state|attempts|JSON, a line a chain",
    "90 d",
)
DELIVERY = Key("delivery", "delivery:%s", "hash", "what is to be posted, and how far", "30 d")
DELIVERY_BODY = Key("delivery_body", "delivery:%s:body", "string", "the bytes posted", "with it")
DELIVERY_LOG = Key(
    "delivery_log", "delivery:%s:log", "list", "at_ms|status or error|ms of a try", "with it"
)
DELIVERIES = Key(
    "deliveries", "deliveries:%s", "zset", "those of owner|user, by created_at in ms", "31 d"
)
ALL_DELIVERIES = Key("all_deliveries", "deliveries", "zset", "those of everybody", "31 d")
ORIGINS = Key("origins", "origins", "zset", "origin by ms of its next delivery", "empty")
ORIGIN = Key("origin", "origin:%s", "zset", "its receivers, owner|origin, likewise", "empty")
RECEIVER = Key("receiver", "receiver:%s", "zset", "its hooks, a path each, likewise", "empty")
HOOK = Key("hook", "hook:%s", "zset", "its pending deliveries by due ms", "empty")
POSTING = Key(
    "posting", "posting:%s", "zset", "of hook, receiver, origin: in flight by end of lease", "30 s"
)
HEALTH = Key(
    "health", "health:%s", "hash", "of hook, receiver: failures in a row, paused_until", "1 d"
)
WAKES_AT = Key("wakes_at", "wakes_at", "string", "id of the last wake that was matched", "never")
EXPIRING = Key("expiring", "expiring", "zset", "queued job by ms from which it ends", "empty")
SLOTS = Key("slots", "slots", "zset", "lease of a generation by ms of its end", "2 min")
TEAM_SLOTS = Key("team_slots", "slots:%s", "zset", "those of one team", "2 min")
COOLDOWNS = Key("cooldowns", "cooldowns", "zset", "target by ms until which it pauses", "the last")
SUBMITS = Key("submits", "submits:%s", "zset", "a team's submits of the last minute", "1 min")
CREDITS = Key(
    "credits", "credits:%s", "hash", "an org's cap, spent, reserved, unsettled", "operator"
)
TEAM_CREDITS = Key(
    "team_credits", "team_credits:%s", "hash", "a team's spent, reserved, unsettled", "operator"
)
CREDITS_LEDGER = Key(
    "credits_ledger", "credits_ledger:%s", "list", "at_ms|event JSON, newest first", "operator"
)
BILLING = Key("billing", "billing", "list", "events that are still to be reported", "tick")
GENERATION_STATS = Key(
    "generation_stats", "generation_stats", "hash", "counts and histograms of all", "never"
)
DELIVERY_STATS = Key(
    "delivery_stats", "delivery_stats", "hash", "counts of deliveries by kind and state", "never"
)

EVENTS = Key("events", "events:%s", "stream", "an org's moves, id `seq-0`", "1 h after the last")
CHANGED = Key("changed", "changed:%s", "zset", "an org's jobs by last event", "archive")

ENDED = Key("ended", "ended", "zset", "ended job by finished_at in ms", "archive")
ORGS = Key("orgs", "orgs", "zset", "every org, by name", "never")
STATS = Key("stats", "stats:%s", "hash", "an org's counts of jobs, failures, latency", "never")
REPAIR_AT = Key("repair_at", "repair_at", "hash", "where the repair sweep goes on", "never")
MIRROR = Key("mirror", "mirror", "list", "jobs whose copy at RQ is to be looked at", "tick")

SCHEDULER = Key(
    "scheduler", "scheduler:%s", "hash", "birth and death of a scheduler process", "20 s, renewed"
)
SCHEDULER_DUE = Key(
    "scheduler_due", "scheduler:due", "zset", "entry of the clock by its next time in s", "never"
)
TICKS = Key("ticks", "ticks", "hash", "tick:part to what its last run did, and totals", "never")

MODE = Key("mode", "mode", "string", "sync, shadow or async: how a submit answers", "operator")

SCRATCH = Key(
    "scratch", "scratch", "string", "marks a database that a proof took, by its time in s", "proof"
)

CREDENTIAL = Key(
    "credential", "key:%s", "hash", "API key or team token: SHA-256, org, user or team", "revoke"
)
CREDENTIALS = Key("credentials", "keys", "set", "ids of API keys and team tokens", "revoke")
TEAM = Key("team", "team:%s", "hash", "a team: its org, created_at in ms", "operator")
TEAMS = Key("teams", "teams", "set", "ids of teams", "operator")
FLAG = Key("flag", "flag:%s", "set", "orgs that have the feature", "operator")

ALL: Final = tuple(value for value in list(globals().values()) if isinstance(value, Key))


def lane(
    org_id: str,
    kind: str,
    target: str,
    team_id: str | None = None,
    second_target: str | None = None,
) -> str:
    """The name of the lane in which such a job waits; scripts build the same (`lane_of`)."""
    team = f"{org_id}/{team_id}" if team_id else org_id
    targets = f"{target}>{second_target}" if second_target else target
    return f"{team}|{kind}|{targets}"


_LIMITS: Final = {
    "SLOT": SCORE_SLOT,
    "EVENTS_TTL_MS": EVENTS_TTL_MS,
    "EVENTS_KEPT": EVENTS_KEPT,
    "IDEMPOTENCY_TTL_MS": IDEMPOTENCY_TTL_MS,
    "CLAIM_TTL_MS": CLAIM_TTL_MS,
    "TOMBSTONE_TTL_MS": TOMBSTONE_TTL_MS,
    "BOOKED_TTL_MS": BOOKED_TTL_MS,
    "MIRROR_KEPT": MIRROR_KEPT,
    "PENDING_TTL_MS": PENDING_TTL_MS,
    "SUCCESS_TTL_MS": SUCCESS_TTL_MS,
    "FAILURE_TTL_MS": FAILURE_TTL_MS,
    "QUEUE_MOST_MS": QUEUE_MOST_MS,
    "SLOT_TTL_MS": SLOT_TTL_MS,
    "STEP_TTL_MS": STEP_TTL_MS,
    "TOKENS_TTL_MS": TOKENS_TTL_MS,
    "TOKENS_KEPT": TOKENS_KEPT,
    "CAPTAINS_LOG_TTL_MS": CAPTAINS_LOG_TTL_MS,
    "LOG_REASONS_BYTES": LOG_REASONS_BYTES,
    "WAKES_TTL_MS": WAKES_TTL_MS,
    "WAKES_KEPT": WAKES_KEPT,
    "DELIVERY_TTL_MS": DELIVERY_TTL_MS,
    "WAKE_KEPT_MS": WAKE_KEPT_MS,
    "DELIVERY_TRIED_MS": DELIVERY_TRIED_MS,
    "WAKE_TRIED_MS": WAKE_TRIED_MS,
    "DELIVERY_LOG_KEPT": DELIVERY_LOG_KEPT,
    "DELIVERIES_KEPT": DELIVERIES_KEPT,
    "HEALTH_MS": HEALTH_MS,
    "CREDITS_LEDGER_KEPT": CREDITS_LEDGER_KEPT,
    "BILLING_KEPT": BILLING_KEPT,
}
"""What the scripts get to know by the same name."""


def lua_table(used: Container[str]) -> str:
    """The Lua source of `K`: every key named in `used` as a function, `K.job(id)`."""
    lines = ["local K = {}"]
    for key in ALL:
        if key.name not in used:
            continue
        if "%s" in key.spelling:
            head, tail = (PREFIX + key.spelling).split("%s")
            lines.append(f"function K.{key.name}(part) return '{head}' .. part .. '{tail}' end")
        else:
            lines.append(f"function K.{key.name}() return '{key()}' end")
    lines += [f"local {name} = {value}" for name, value in _LIMITS.items()]
    edges = ",".join(str(edge) for edge in GENERATION_BUCKETS_MS)
    lines.append(f"local GENERATION_BUCKETS_MS = {{{edges}}}")
    return "\n".join(lines) + "\n"
