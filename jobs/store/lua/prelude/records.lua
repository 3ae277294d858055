-- Shared by all scripts. `move` is the one place where a state is written and its event
-- appended. Check before the first write: Redis does not roll back. The key table K, the RQ
-- facts and the limits stand in front of this text; scripts address keys through K only.
local call = redis.call

local CHUNK = 1000 -- unpack takes some thousands of values at most

local function now_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function int(n)
  return string.format('%.0f', n)
end

-- fetch: the fields of a job that checks and moves need, or nil.
local function fetch(id)
  local r = call('HMGET', K.job(id), 'state', 'prompt_id', 'org_id', 'created_by', 'kind',
    'target', 'priority', 'seq', 'attempt', 'max_attempts', 'worker_claim', 'last_token',
    'last_verb', 'started_at', 'idem', 'error_kind', 'created_at', 'supersedes', 'schema_version',
    'scheduled_for', 'depends_on', 'team_id', 'second_target', 'expires_at', 'reserved')
  if not r[1] then return nil end
  return {id = id, state = r[1], prompt_id = r[2], org_id = r[3], created_by = r[4], kind = r[5],
    target = r[6], priority = tonumber(r[7]), seq = tonumber(r[8]), attempt = tonumber(r[9]),
    max_attempts = tonumber(r[10]), worker_claim = r[11], last_token = r[12], last_verb = r[13],
    started_at = tonumber(r[14] or '0'), idem = r[15], error_kind = r[16],
    created_at = tonumber(r[17]), supersedes = r[18], schema_version = tonumber(r[19] or '0'),
    scheduled_for = tonumber(r[20] or '0'), depends_on = r[21], team_id = r[22],
    second_target = r[23], expires_at = r[24] and tonumber(r[24]), reserved = tonumber(r[25] or '0')}
end

-- audit: one row for what ended or was decided about a job.
local function audit(job, verb, detail, now)
  call('RPUSH', K.audit(job.prompt_id),
    table.concat({int(now), verb, job.id, int(job.attempt), detail}, '|'))
end

-- give_back: the first write of a script that frees memory, so that full memory lets it pass.
local function give_back()
  call('ZREM', K.running(), '')
end
