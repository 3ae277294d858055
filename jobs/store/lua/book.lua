-- book: a call that nobody waits for any more was made all the same: its usage counts, its text
-- does not (X16). Job, sets and events stay as they are.
-- A generation has a bill, and frees the slots that the call had under `token` (B18).
-- ARGV: id attempt response_id ledger bill token ticket_cap
-- Returns {OK, wanted}, also when repeated, or {MISSING, 0}.
local job = fetch(id)
if not job then return {'MISSING', 0} end

local function done()
  return {'OK', opened > 0 and ticket_wanted(ticket_cap) or 0}
end

local now = now_ms()
if job.kind == 'generation' then free_slots(job, token, now) end
if call('EXISTS', K.response(response_id)) == 1 then return done() end
if not call('SET', K.booked(response_id), '1', 'NX', 'PX', BOOKED_TTL_MS) then return done() end
if job.kind == 'generation' then
  local held = tonumber(call('HGET', K.job(id), 'unsettled') or '0')
  -- What was written off meanwhile is not there to be taken back.
  held = math.min(held, tonumber(call('HGET', K.credits(job.org_id), 'unsettled') or '0'))
  call('HDEL', K.job(id), 'unsettled')
  local spent, unsettled = book_bill(job, bill, now)
  add_credits(job, 0, spent, unsettled - held)
else
  call('RPUSH', K.ledger(job.prompt_id), table.concat({int(now), id, attempt, ledger}, '|'))
end
return done()
