-- promote: due jobs enter their lanes, gates that have room again let lanes through, and what
-- waited for an ended job goes on.
-- ARGV: limit ticket_cap
-- Returns {promoted, reopened, wanted, now, next_run_at or '', swept_at or ''}.
local now = now_ms()
local promoted = promote_due(now, limit)
release_some(limit, now)
local reopened = 0
for _, gate in ipairs(call('SRANDMEMBER', K.gates(), limit)) do
  reopened = reopened + reopen_gate(gate)
end
local next_due = call('ZRANGE', K.scheduled(), 0, 0, 'WITHSCORES')
return {promoted, reopened, ticket_wanted(ticket_cap), int(now), next_due[2] or '',
  call('GET', K.swept_at()) or ''}
