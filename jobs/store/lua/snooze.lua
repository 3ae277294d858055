-- snooze: a running attempt goes back to the queue for a while; it does not count.
-- `bill` is what a generation used before it was put back, `turn` as JSON what a chat turn did.
-- ARGV: id token reason after_ms bill turn ticket_cap
-- Returns {OK, wanted}, or {MISSING|WRONG_STATE|LEASE_LOST}; writes nothing unless OK.
local job, word = guard(id, token, 'snooze')
if not job then return repeated(word, ticket_cap) end
local now = now_ms()
leave_running(job, now, token)
if bill ~= '' then
  local spent, unsettled = book_bill(job, bill, now)
  add_credits(job, 0, spent, unsettled)
end
if turn ~= '' then book_calls(job, cjson.decode(turn), now) end
if is_turn(job) then show_request(job, 'queued') end
if job.expires_at and job.kind == 'generation' then
  -- The time in which it ran was not time in the queue (B11).
  job.expires_at = job.expires_at + math.max(0, now - job.started_at)
  call('HSET', K.job(id), 'expires_at', int(job.expires_at))
end
requeue(job, 'snooze', now + tonumber(after_ms), now, reason,
  {'last_token', token, 'last_verb', 'snooze'})
return {'OK', ticket_wanted(ticket_cap)}
