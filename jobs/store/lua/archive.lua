-- archive: remove ended jobs that were written elsewhere, and what belongs to their prompts (A24).
-- ARGV: ids*
-- Returns the ids that are gone now; a job that has not ended, or is not there, is not named.
local now = now_ms()
give_back()

-- forget_prompt: with its last job a prompt goes, and all that came of it.
local function forget_prompt(prompt_id)
  for _, edge in ipairs(call('LRANGE', K.edges(prompt_id), 0, -1)) do
    local response = string.match(edge, '|([^|]*)$')
    call('UNLINK', K.response(response), K.text(response))
  end
  local request = call('HGET', K.prompt(prompt_id), 'request')
  if request then
    call('UNLINK', K.request(request), K.request_plan(request), K.request_target(request),
      K.request_attempts(request), K.request_note(request), K.tokens(request))
  end
  call('UNLINK', K.prompt(prompt_id), K.text(prompt_id), K.metadata(prompt_id),
    K.replaced(prompt_id), K.edges(prompt_id), K.ledger(prompt_id), K.audit(prompt_id))
end

local gone = {}
for _, id in ipairs(ids) do
  local job = fetch(id)
  if job and ENDED[job.state] then
    local finished = call('HGET', K.job(id), 'finished_at') or int(now)
    call('UNLINK', K.job(id), K.options(id), K.error(id), K.history(id), K.dependents(id))
    call('ZREM', K.ended(), id)
    call('SREM', K.released(), id)
    call('ZREM', K.changed(job.org_id), id)
    call('LREM', K.replaced(job.prompt_id), 0, id)
    if job.idem and call('PTTL', K.idempotency(job.idem)) == -1 then -- its chain goes on
      call('PEXPIRE', K.idempotency(job.idem), IDEMPOTENCY_TTL_MS)
    end
    count(job, 'submitted', -1)
    count(job, job.state, -1)
    if job.error_kind then note_mirror(id) end
    call('SET', K.tombstone(id), job.org_id .. '|' .. job.state .. '|' .. finished, 'PX',
      TOMBSTONE_TTL_MS)
    local newest = call('HGET', K.prompt(job.prompt_id), 'job_id')
    local is_alone = call('EXISTS', K.replaced(job.prompt_id)) == 0
    if is_alone and (not newest or call('EXISTS', K.job(newest)) == 0) then
      forget_prompt(job.prompt_id)
    end
    gone[#gone + 1] = id
  end
end
return gone
