-- retry: a running attempt failed and another may help; it counts (A10).
-- ARGV: id token kind message after_ms cooldown_target cooldown_ms ticket_cap
-- Returns {OK, wanted}, or {MISSING|WRONG_STATE|LEASE_LOST}; writes nothing unless OK.
local job, word = guard(id, token, 'retry')
if not job then return repeated(word, ticket_cap) end
local now = now_ms()
leave_running(job, now, token)
cool_down(cooldown_target, cooldown_ms, now)
local fields = {'last_token', token, 'last_verb', 'retry'}
note_error(job, kind, message, fields)
job.attempt = job.attempt + 1
requeue(job, 'retry', now + tonumber(after_ms), now, kind, fields)
return {'OK', ticket_wanted(ticket_cap)}
