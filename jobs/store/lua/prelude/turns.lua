-- Turns: what a chat turn keeps beside its jobs, and how its chain of background attempts ends.
-- `job.turn` is what the script that ends an attempt knows of it: calls (usage as JSON, one a
-- call), cooldowns (target and ms), entry (the failed attempt as JSON), awaiting, note, state, or
-- id and after_ms of the next attempt. Where it knows nothing (cancel, expire) the request still ends.

local function is_turn(job)
  return job.kind == 'chat' or job.kind == 'escalation'
end

-- request_of: the request that an attempt belongs to: the id of its first job.
local function request_of(job)
  if job.kind == 'chat' then return job.id end
  return call('HGET', K.job(job.id), 'root_id') or job.id
end

-- show_request: how the request of a job that goes on or back stands now; whether there is one.
local function show_request(job, status)
  local request = K.request(request_of(job))
  if call('EXISTS', request) == 0 then return false end
  call('HSET', request, 'status', status)
  return true
end

-- count_death: the worker of an attempt is gone; the attempt goes back to the queue.
local function count_death(job)
  if show_request(job, 'queued') then call('HINCRBY', K.request(request_of(job)), 'deaths', 1) end
end

-- book_calls: a row of the ledger for each call to a model, and the pauses that were asked for.
local function book_calls(job, turn, now)
  for _, usage in ipairs(turn.calls or {}) do
    call('RPUSH', K.ledger(job.prompt_id),
      table.concat({int(now), job.id, int(job.attempt), usage}, '|'))
  end
  for _, asked in ipairs(turn.cooldowns or {}) do cool_down(asked[1], asked[2], now) end
end

-- tell_retry: an event of the chain in the organisation's stream (C18).
local function tell_retry(job, request, what, attempt, state, now)
  local seq = int(call('INCR', K.seq()))
  tell(job.org_id, seq, {'type', 'response.retry.' .. what, 'job_id', job.id, 'prompt_id',
    job.prompt_id, 'user', job.created_by, 'request', request, 'attempt', int(attempt), 'state',
    state, 'at', int(now)})
  call('ZADD', K.changed(job.org_id), seq, job.id)
end

-- attempt_of: the number of the attempt that is next or runs; the synchronous turn is 1.
local function attempt_of(request)
  return call('LLEN', K.request_attempts(request)) + 1
end

-- begin_turn: a run of an attempt begins. With the second background attempt the clock of the
-- deadline does (C7); in the queue the attempt waits no longer than that.
local function begin_turn(job, now)
  call('ZREM', K.expiring(), job.id)
  if not show_request(job, 'processing') then return end
  local request = request_of(job)
  call('HINCRBY', K.request(request), 'runs', 1)
  local deadline_ms = call('HGET', K.request(request), 'deadline_ms')
  if not deadline_ms or deadline_ms == '' or attempt_of(request) < 3 then return end
  call('HSETNX', K.request(request), 'deadline_at', int(now + tonumber(deadline_ms)))
  call('HSET', K.job(job.id), 'expires_at', call('HGET', K.request(request), 'deadline_at'))
end

-- abandoned_detail: where the chain stood when it was cancelled.
local function abandoned_detail(job, request)
  local doing = 'was queued'
  if job.state == 'running' then
    doing = call('EXISTS', K.request_plan(request)) == 1 and 'ran' or 'was being planned'
  end
  return 'cancelled while attempt ' .. int(attempt_of(request)) .. ' ' .. doing
end

local ended_chains = {} -- by this script: request, state, detail

local STATUS_OF = {achieved = 'completed', abandoned = 'cancelled'}

-- reasons_of: why the attempts of a request failed, each once; no more than a line of the log
-- shows. An entry that can't be read must not keep the chain from ending.
local function reasons_of(request)
  local reasons, known, bytes = {}, {}, 0
  for _, entry in ipairs(call('LRANGE', K.request_attempts(request), 0, -1)) do
    local is_read, kept = pcall(cjson.decode, entry)
    local reason = is_read and kept.reason
    if reason and not known[reason] and bytes < LOG_REASONS_BYTES then
      known[reason], reasons[#reasons + 1], bytes = true, reason, bytes + #reason
    end
  end
  return reasons
end

-- end_chain: its state, its event, its line in the captain's log (C14), its delivery (C10): all
-- in the script that ends it.
local function end_chain(job, request, state, detail, now)
  local r = call('HMGET', K.request(request), 'client', 'user', 'delivery')
  local attempts = attempt_of(request) - (state == 'achieved' and 0 or 1)
  tell_retry(job, request, 'terminal', attempts, state, now)
  call('HSET', K.request(request), 'state', state, 'status', STATUS_OF[state] or 'failed',
    'ended_at', int(now))
  if detail ~= '' then call('SET', K.request_note(request), detail) end
  for _, told in ipairs({request, state, detail}) do ended_chains[#ended_chains + 1] = told end
  local idem = call('HGET', K.job(request), 'idem')
  if idem then call('PEXPIRE', K.idempotency(idem), IDEMPOTENCY_TTL_MS) end
  if state ~= 'achieved' then
    local day = int(math.floor(now / 86400000))
    local log = K.captains_log(r[1] .. ':' .. day .. ':' .. r[2])
    call('RPUSH', log, table.concat({int(now), request, state, int(attempts),
      cjson.encode({detail, unpack(reasons_of(request))})}, '|'))
    call('PEXPIRE', log, CAPTAINS_LOG_TTL_MS)
  end
  if state == 'abandoned' or r[3] == 'polling' then return end
  add_delivery({id = request, kind = r[3] == 'webhook' and 'webhook' or 'channel', owner = r[1],
    user = r[2], ref = request, url = call('GET', K.request_target(request))}, now)
end

-- end_request: a turn that ended without a chain.
local function end_request(job, request, to, turn, now)
  local status = to == 'succeeded' and 'completed' or to
  if turn.awaiting then
    status = 'awaiting_' .. turn.awaiting
    call('SET', K.request_note(request), turn.note)
  end
  call('HSET', K.request(request), 'status', status, 'ended_at', int(now))
end

-- end_turn: an attempt has ended, whatever way. Where another follows, `go_on` makes it.
local function end_turn(job, to, now)
  local request, turn = request_of(job), job.turn or {}
  book_calls(job, turn, now)
  if call('EXISTS', K.tokens(request)) == 1 then
    call('PEXPIRE', K.tokens(request), TOKENS_TTL_MS)
  end
  call('ZREM', K.expiring(), job.id)
  if call('EXISTS', K.request(request)) == 0 then return end -- archived, or a stranger's job
  local detail = to == 'cancelled' and abandoned_detail(job, request)
  if turn.entry then
    if job.kind == 'escalation' and call('EXISTS', K.request_plan(request)) == 0 then
      -- It failed before it had a plan: what is reported has begun.
      tell_retry(job, request, 'attempt', attempt_of(request), '', now)
    end
    call('RPUSH', K.request_attempts(request), turn.entry)
  end
  call('DEL', K.request_plan(request))
  local response = to == 'succeeded' and call('HGET', K.prompt(job.prompt_id), 'response_id')
  if response then call('HSET', K.request(request), 'response_id', response) end
  if turn.id then
    if job.kind == 'chat' then
      call('HSET', K.request(request), 'escalated_at', int(now), 'max_attempts',
        int(turn.max_attempts), 'idle_ms', int(turn.idle_ms), 'deadline_ms', turn.deadline_ms)
      tell_retry(job, request, 'escalated', 1, '', now)
    end
  elseif job.kind == 'chat' then
    end_request(job, request, to, turn, now)
  elseif to == 'succeeded' then
    end_chain(job, request, 'achieved', '', now)
  elseif to == 'cancelled' then
    end_chain(job, request, 'abandoned', detail, now)
  else
    end_chain(job, request, turn.state or 'budget_exhausted',
      turn.note or 'the chain itself broke: ' .. (job.error_kind or 'unknown'), now)
  end
end
