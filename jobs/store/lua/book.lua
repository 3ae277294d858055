-- book: a call that nobody waits for any more was made all the same: its usage counts, its text
-- does not (X16). Job, sets and events stay as they are.
-- A chat turn has a line of `ledger` for each call. A generation has a bill, and frees the slots that the call had under `token` (B18).
-- ARGV: id attempt response_id ledger bill token team_id ticket_cap
-- Returns {OK, wanted}, also when repeated, or {MISSING, wanted}.
local now = now_ms()
local job = fetch(id)
if team_id ~= '' then free_slots({team_id = team_id}, token, now) end

local function done(word)
  return {word or 'OK', opened > 0 and ticket_wanted(ticket_cap) or 0}
end

if not job then return done('MISSING') end
if call('EXISTS', K.response(response_id)) == 1 then return done() end
if not call('SET', K.booked(response_id), '1', 'NX', 'PX', BOOKED_TTL_MS) then return done() end
if job.kind == 'generation' then
  local r = call('HMGET', K.job(id), 'unsettled', 'written_off')
  local held = tonumber(r[1] or '0')
  -- What was written off meanwhile is not there to be taken back.
  if r[2] ~= (call('HGET', K.credits(job.org_id), 'written_off') or '0') then held = 0 end
  call('HDEL', K.job(id), 'unsettled', 'written_off')
  local spent, unsettled = book_bill(job, bill, now)
  add_credits(job, 0, spent, unsettled - held)
else
  for usage in string.gmatch(ledger, '[^\n]+') do
    call('RPUSH', K.ledger(job.prompt_id), table.concat({int(now), id, attempt, usage}, '|'))
  end
end
return done()
