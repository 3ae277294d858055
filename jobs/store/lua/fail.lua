-- fail: end a running attempt and its job with an error.
-- `code` and `bill` are a generation's; `cooldown_ms` is for how long nothing more goes to
-- `cooldown_target` ('' for none).
-- ARGV: id token kind message code bill cooldown_target cooldown_ms ticket_cap
-- Returns {OK, wanted}, or {MISSING|WRONG_STATE|LEASE_LOST}; writes nothing unless OK.
local job, word = guard(id, token, 'fail')
if not job then return repeated(word, ticket_cap) end
local now = now_ms()
leave_running(job, now, token)
cool_down(cooldown_target, cooldown_ms, now)
if job.kind == 'generation' then
  job.ending = {code = code ~= '' and code or 'gateway_unavailable', bill = bill}
end
local fields = {'last_token', token, 'last_verb', 'fail'}
note_error(job, kind, message, fields)
audit(job, 'fail', kind, now)
move(job, 'failed', 'fail', now, kind, fields)
return settled(ticket_cap, now)
