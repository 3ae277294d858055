-- Steps: what a workflow's step keeps beside its job. `woken` is 1 from its wake until the next
-- execution, then 2: a wake that comes before the step parks is not lost, and one that comes
-- again does nothing (B26).

local function is_woken(id)
  return call('HGET', K.step(id), 'woken') == '1'
end

-- begin_step: an execution begins, counted also where its worker dies (B27).
local function begin_step(job)
  call('HINCRBY', K.step(job.id), 'executions', 1)
  if is_woken(job.id) then call('HSET', K.step(job.id), 'woken', '2') end
end

-- end_step: it can be read for a while, and who named a URL is told that it ended.
local function end_step(job, to, now)
  add_delivery({id = job.id, kind = 'wake', owner = 'team:' .. job.team_id, ref = job.id,
    url = call('HGET', K.step(job.id), 'callback_url'), step_state = to}, now)
  call('HDEL', K.step(job.id), 'token')
  for _, key in ipairs({K.step, K.step_inputs, K.step_log, K.step_result}) do
    call('PEXPIRE', key(job.id), STEP_TTL_MS)
  end
  call('PEXPIRE', K.text(job.prompt_id), STEP_TTL_MS)
end
