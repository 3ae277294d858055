-- promote: due jobs enter their lanes, gates that have room again let lanes through, what
-- waited for an ended job goes on, and what nobody can collect any more ends.
-- ARGV: limit ticket_cap
-- Returns {promoted, reopened, wanted, now, next_run_at or '', swept_at or '', ended_chains}.
local now = now_ms()
local promoted = promote_due(now, limit)
release_some(limit, now)
expire_some(now, limit)
call('ZREMRANGEBYSCORE', K.cooldowns(), '-inf', int(now))
local reopened = 0
for _, gate in ipairs(call('SRANDMEMBER', K.gates(), limit)) do
  reopened = reopened + reopen_gate(gate, now)
end
local due = next_due(now)
return {promoted, reopened, ticket_wanted(ticket_cap), int(now), due and int(due) or '',
  call('GET', K.swept_at()) or '', ended_chains}
