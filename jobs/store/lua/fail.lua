-- fail: end a running attempt and its job with an error.
-- `code` and `bill` are a generation's; `cooldown_ms` is for how long nothing more goes to
-- `cooldown_target` ('' for none).
-- `turn` is what a chat turn's attempt leaves, as JSON (prelude/turns.lua), '' for none.
-- ARGV: id token kind message code bill cooldown_target cooldown_ms turn ticket_cap
-- Returns {OK, wanted}, or {MISSING|WRONG_STATE|LEASE_LOST}; writes nothing unless OK.
local job, word = guard(id, token, 'fail')
if not job then return repeated(word, ticket_cap) end
local now = now_ms()
leave_running(job, now, token)
cool_down(cooldown_target, cooldown_ms, now)
if job.kind == 'generation' then
  job.ending = {code = code ~= '' and code or 'gateway_unavailable', bill = bill}
end
if turn ~= '' then job.turn = cjson.decode(turn) end
local fields = {'last_token', token, 'last_verb', 'fail'}
note_error(job, kind, message, fields)
audit(job, 'fail', kind, now)
move(job, 'failed', 'fail', now, kind, fields)
if job.turn and job.turn.id then go_on(job, now) end
return settled(ticket_cap, now)
