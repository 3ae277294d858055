-- What the end of a generation brings with it: its record, its credits, its wakes, its figures.

-- tally: one more of what generations are counted by (B22).
local function tally(name)
  call('HINCRBY', K.generation_stats(), name, 1)
end

-- observe: a duration in ms into the histogram `name`.
local function observe(name, ms)
  local edge = 'inf'
  for _, most in ipairs(GENERATION_BUCKETS_MS) do
    if ms <= most then
      edge = int(most)
      break
    end
  end
  tally(name .. ':' .. edge)
  call('HINCRBY', K.generation_stats(), name .. ':sum', int(ms))
end

-- add_credits: to what is reserved, spent and unsettled of a team and of its organisation (B17).
local function add_credits(job, reserved, spent, unsettled)
  for _, key in ipairs({K.credits(job.org_id), K.team_credits(job.team_id)}) do
    if reserved ~= 0 then call('HINCRBY', key, 'reserved', int(reserved)) end
    if spent ~= 0 then call('HINCRBY', key, 'spent', int(spent)) end
    if unsettled ~= 0 then call('HINCRBY', key, 'unsettled', int(unsettled)) end
  end
end

local function note_credits(job, row, now)
  call('LPUSH', K.credits_ledger(job.team_id), int(now) .. '|' .. row)
  call('LTRIM', K.credits_ledger(job.team_id), 0, CREDITS_LEDGER_KEPT - 1)
end

-- book_bill: rows for the calls of a bill, `spent|unsettled|captured` and a line a call, which
-- is usage, a tab, and the event that is told. Answers what was spent and what is unsettled.
local function book_bill(job, bill, now)
  local spent, unsettled, captured = string.match(bill, '^(%d+)|(%d+)|(%d)')
  if not spent then return 0, 0 end
  for usage, event in string.gmatch(bill, '\n([^\t\n]*)\t([^\n]*)') do
    call('RPUSH', K.ledger(job.prompt_id),
      table.concat({int(now), job.id, int(job.attempt), usage}, '|'))
    note_credits(job, event, now)
    if captured == '1' and call('RPUSH', K.billing(), event) > BILLING_KEPT then
      call('LTRIM', K.billing(), -BILLING_KEPT, -1)
    end
  end
  return tonumber(spent), tonumber(unsettled)
end

-- settle_credits: what was reserved is given back, what was used is spent. Where a call was
-- taken away from its worker nobody knows what it used: it stays visible as unsettled.
local function settle_credits(job, bill, was_called, now)
  local spent, unsettled = 0, 0
  call('HDEL', K.job(job.id), 'reserved')
  if bill then
    spent, unsettled = book_bill(job, bill, now)
  elseif was_called and job.reserved > 0 then
    unsettled = job.reserved
    call('HSET', K.job(job.id), 'unsettled', int(unsettled), 'written_off',
      call('HGET', K.credits(job.org_id), 'written_off') or '0')
    note_credits(job, '{"event":"credits_unsettled","properties":{"generation_id":"' .. job.id
      .. '","team_id":"' .. job.team_id .. '","usd_micros":' .. int(unsettled) .. '}}', now)
  end
  add_credits(job, -job.reserved, spent, unsettled)
end

-- answer_generation: the terminal record, which answers resubmits as well (B10).
local function answer_generation(id, team_id, code, fields)
  local ttl = code == '' and SUCCESS_TTL_MS or FAILURE_TTL_MS
  call('HSET', K.generation(id), 'team_id', team_id, 'status',
    code == '' and 'succeeded' or 'failed', 'code', code, unpack(fields))
  call('PEXPIRE', K.generation(id), ttl)
  return ttl
end

-- wake_waiters: who waits is told that there is something to fetch, not what: by the stream, and
-- by a post to who named a URL, whose id is of generation and token. A waiter is its token, or
-- token, space, URL.
local function wake_waiters(job, now)
  local waiters = call('SMEMBERS', K.waiters(job.id))
  for _, waiter in ipairs(waiters) do
    local token, url = string.match(waiter, '^(%S+) ?(%S*)$')
    call('XADD', K.wakes(), 'MAXLEN', '~', WAKES_KEPT, '*', 'event',
      '$workflows_llm_generation_finished', 'generation_id', job.id, 'team_id', job.team_id,
      'wake_token', token)
    if url ~= '' then
      add_delivery({id = job.id .. '-' .. string.sub(redis.sha1hex(token), 1, 16), kind = 'wake',
        owner = 'team:' .. job.team_id, ref = job.id, url = url, wake_token = token}, now)
    end
  end
  if waiters[1] then
    call('PEXPIRE', K.wakes(), WAKES_TTL_MS)
    call('DEL', K.waiters(job.id))
  end
end

-- begin_generation: an attempt of it takes its slots; it may be collected as long as it runs.
local function begin_generation(job, lease, now)
  take_slots(job, lease, now)
  call('ZREM', K.expiring(), job.id)
  tally('started')
  observe('wait', math.max(0, now - job.created_at))
end

-- end_generation: whatever way it ended, its record says so (B19). `job.ending` is what the
-- ending script knows of it: code, message, envelope, bill.
local function end_generation(job, to, now, was_called)
  local ending = job.ending or {}
  local code = to == 'succeeded' and '' or ending.code or 'capacity_unavailable'
  local fields = {}
  for _, name in ipairs({'message', 'envelope'}) do
    if ending[name] and ending[name] ~= '' then
      fields[#fields + 1] = name
      fields[#fields + 1] = ending[name]
    end
  end
  call('ZREM', K.expiring(), job.id)
  local ttl = answer_generation(job.id, job.team_id, code, fields)
  local digest = call('HGET', K.job(job.id), 'digest')
  if digest and call('GET', K.generation_of(digest)) == job.id then
    -- Who cancelled it did not mean the next one who asks for the same.
    call('PEXPIRE', K.generation_of(digest), to == 'cancelled' and 0 or ttl)
  end
  call('PEXPIRE', K.text(job.prompt_id), ttl)
  call('PEXPIRE', K.options(job.id), ttl)
  settle_credits(job, ending.bill, was_called, now)
  wake_waiters(job, now)
  if code == '' then tally('finished') else tally('failed:' .. code) end
  if was_called then observe('duration', math.max(0, now - job.started_at)) end
end
