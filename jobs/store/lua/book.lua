-- book: a call that nobody waits for any more was made all the same: its usage counts, its text
-- does not (X16). Job, sets and events stay as they are.
-- ARGV: id attempt response_id ledger
-- Returns OK, also when repeated, or MISSING.
local job = fetch(id)
if not job then return 'MISSING' end
if call('EXISTS', K.response(response_id)) == 1 then return 'OK' end
if not call('SET', K.booked(response_id), '1', 'NX', 'PX', BOOKED_TTL_MS) then return 'OK' end
call('RPUSH', K.ledger(job.prompt_id),
  table.concat({int(now_ms()), id, attempt, ledger}, '|'))
return 'OK'
