-- submit: store a prompt and its job, once.
-- ARGV: job_id prompt_id org_id user_id kind target priority max_attempts text options metadata parent_id correlation_id causation_id scheduled_for depends_on idem payload_hash team_id step_inputs request target_url ticket_cap schema_version
-- Returns {OK, wanted}; {DUPLICATE, job_id, prompt_id} where the idempotency key stands for
-- this payload already; {REUSED, job_id} where it stands for another; {UNRELATED, field}
-- where a named entity is not of this org (A18); {TAKEN} where one of the ids is another
-- job's or prompt's. Writes nothing unless OK.
local sent = call('HMGET', K.job(job_id), 'org_id', 'prompt_id')
if sent[1] == org_id and sent[2] == prompt_id then return {'OK', ticket_wanted(ticket_cap)} end
if sent[1] or call('EXISTS', K.prompt(prompt_id)) == 1 then return {'TAKEN'} end
if idem ~= '' then
  local known = call('GET', K.idempotency(idem))
  if known then
    local hash, job, prompt = string.match(known, '^([^|]*)|([^|]*)|(.*)$')
    if hash == payload_hash then return {'DUPLICATE', job, prompt} end
    return {'REUSED', job}
  end
end

-- conversation: the correlation id of a prompt or response of this org, or nil.
local function conversation(id)
  local response = call('HMGET', K.response(id), 'org_id', 'prompt_id')
  local prompt = response[1] and response[2] or id
  local r = call('HMGET', K.prompt(prompt), 'org_id', 'correlation_id')
  if r[1] ~= org_id then return nil end
  return r[2] or prompt
end

local correlation = prompt_id
if parent_id ~= '' then
  correlation = conversation(parent_id)
  if not correlation then return {'UNRELATED', 'parent_id'} end
end
if correlation_id ~= '' then
  if not conversation(correlation_id) then return {'UNRELATED', 'correlation_id'} end
  correlation = correlation_id
end
local causation = parent_id
if causation_id ~= '' then
  if not conversation(causation_id) then return {'UNRELATED', 'causation_id'} end
  causation = causation_id
end
local dependency, awaited
if depends_on ~= '' then
  local state, current, org = outcome_of(depends_on)
  if not state or org ~= org_id then return {'UNRELATED', 'depends_on'} end
  dependency, awaited = state, current
end

local now = now_ms()
local run_at = tonumber(scheduled_for ~= '' and scheduled_for or '0')
local job = {id = job_id, prompt_id = prompt_id, org_id = org_id, created_by = user_id,
  kind = kind, target = target, priority = tonumber(priority), attempt = 1, created_at = now}
if team_id ~= '' then job.team_id = team_id end
local prompt = {'org_id', org_id, 'created_by', user_id, 'created_at', int(now), 'job_id', job_id}
local function also(field, value)
  prompt[#prompt + 1] = field
  prompt[#prompt + 1] = value
end
if parent_id ~= '' then also('parent_id', parent_id) end
if correlation ~= prompt_id then also('correlation_id', correlation) end
if causation ~= '' then also('causation_id', causation) end

call('HSET', K.prompt(prompt_id), unpack(prompt))
call('SET', K.text(prompt_id), text)
if metadata ~= '' then call('SET', K.metadata(prompt_id), metadata) end
if options ~= '' then call('SET', K.options(job_id), options) end
local fields, field = new_record(job, max_attempts, schema_version)
if idem ~= '' then
  call('SET', K.idempotency(idem), payload_hash .. '|' .. job_id .. '|' .. prompt_id)
  field('idem', idem)
end
if step_inputs ~= '' then
  call('HSET', K.step(job_id), 'team_id', team_id)
  if target_url ~= '' then call('HSET', K.step(job_id), 'callback_url', target_url) end
  call('SET', K.step_inputs(job_id), step_inputs)
end
if request ~= '' then
  local of = cjson.decode(request)
  call('HSET', K.request(job_id), 'org_id', org_id, 'client', team_id, 'user', of.user,
    'delivery', of.delivery,
    'streams', of.streams, 'status', 'queued', 'job', job_id, 'prompt_id', prompt_id,
    'created_at', int(now))
  call('HSET', K.prompt(prompt_id), 'request', job_id)
  if target_url ~= '' then call('SET', K.request_target(job_id), target_url) end
end
if scheduled_for ~= '' then field('scheduled_for', scheduled_for) end
local is_free = not dependency or dependency == 'succeeded'
if run_at > now and is_free then field('run_at', int(run_at)) end
if depends_on ~= '' then field('depends_on', depends_on) end
call('ZADD', K.orgs(), 0, org_id)
move(job, 'queued', 'submit', now, '', fields)
if is_free then
  wait_until(job, run_at, now)
elseif ENDED[dependency] then
  expire(job, 'blocked', 'the job that it depends on did not succeed', now)
else
  call('ZADD', K.blocked(), int(job.seq), job_id)
  call('SADD', K.dependents(awaited), job_id)
end
-- Where this is the next scheduled job, somebody has to learn when it is due.
if run_at > now and call('ZRANGE', K.scheduled(), 0, 0)[1] == job_id then
  return {'OK', call('LLEN', RQ.queue) < tonumber(ticket_cap) and 1 or 0}
end
return {'OK', ticket_wanted(ticket_cap)}
