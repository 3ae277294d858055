-- succeed: end a running attempt with its response, entity, edge, ledger and audit row (A19);
-- a generation with its envelope and its bill, a step with what its record holds, a chat turn
-- with `turn` (prelude/turns.lua) as JSON and a response, unless it awaits something.
-- ARGV: id token response_id text source_refs ledger envelope bill turn ticket_cap response*
-- Returns {OK, wanted}, or {MISSING|WRONG_STATE|LEASE_LOST}; writes nothing unless OK. A response that
-- is stored already (A15) is kept as it is, with its edge and its ledger row.
local job, word = guard(id, token, 'succeed')
if not job then return repeated(word, ticket_cap) end
local now = now_ms()
leave_running(job, now, token)
if turn ~= '' then job.turn = cjson.decode(turn) end
if response_id == '' then
  job.ending = {envelope = envelope, bill = bill}
  audit(job, 'succeed', '', now)
  move(job, 'succeeded', 'succeed', now, '', {'last_token', token, 'last_verb', 'succeed'})
  return settled(ticket_cap, now)
end
if call('EXISTS', K.response(response_id)) == 0 then
  call('HSET', K.response(response_id), 'prompt_id', job.prompt_id, 'org_id', job.org_id,
    'job_id', id, 'created_at', int(now), 'source_refs', source_refs, unpack(response))
  call('SET', K.text(response_id), text)
  call('RPUSH', K.edges(job.prompt_id), job.prompt_id .. '|flows-to|' .. response_id)
  if ledger ~= '' then
    call('RPUSH', K.ledger(job.prompt_id),
      table.concat({int(now), id, int(job.attempt), ledger}, '|'))
  end
else -- the job before had it too; a claim had set it aside
  call('HSET', K.response(response_id), 'state_class', 'settled')
end
call('HSET', K.prompt(job.prompt_id), 'response_id', response_id)
audit(job, 'succeed', response_id, now)
if job.error_kind then -- of an attempt before
  call('HDEL', K.job(id), 'error_kind')
  call('DEL', K.error(id))
end
move(job, 'succeeded', 'succeed', now, '', {'response_id', response_id, 'last_token', token,
  'last_verb', 'succeed'})
return settled(ticket_cap, now)
