-- fail: end a running attempt and its job with an error.
-- ARGV: id token kind message ticket_cap
-- Returns {OK, wanted}, or {MISSING|WRONG_STATE|LEASE_LOST}; writes nothing unless OK.
local job, word = guard(id, token, 'fail')
if not job then return repeated(word, ticket_cap) end
local now = now_ms()
leave_running(job)
local fields = {'last_token', token, 'last_verb', 'fail'}
note_error(job, kind, message, fields)
audit(job, 'fail', kind, now)
move(job, 'failed', 'fail', now, kind, fields)
return settled(ticket_cap, now)
