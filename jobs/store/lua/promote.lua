-- promote: due jobs enter their lanes, and gates that have room again let lanes through.
-- ARGV: limit ticket_cap
-- Returns {promoted, reopened, next_run_at or '', wanted}.
local now = now_ms()
local promoted = promote_due(now, limit)
local reopened = 0
for _, gate in ipairs(call('SRANDMEMBER', K.gates(), limit)) do
  reopened = reopened + reopen_gate(gate)
end
local next_due = call('ZRANGE', K.scheduled(), 0, 0, 'WITHSCORES')
return {promoted, reopened, next_due[2] or '', ticket_wanted(ticket_cap)}
