-- submit_generation: let a generation through every gate and store it, once (B21). The order is
-- throttle, flag, dedupe, refusal or credits, write; nothing is enqueued where one says no.
-- ARGV: job_id prompt_id team_id org_id target second_target text options digest wake_token wake_url flag per_minute reserve refusal ticket_cap schema_version
-- Returns {OK, wanted, id, record} for what was stored now, be it refused at once; {DUPLICATE, 0,
-- id, record} where the digest names an earlier one; {THROTTLED, ms}; {UNAVAILABLE};
-- {TAKEN} where one of the ids is another's. A record is name, value, name, value.
local WINDOW_MS = 60000
local WAITERS_MOST = 16
local USER = 'team:' .. team_id

local function answer(word, wanted, id)
  return {word, wanted, id, call('HGETALL', K.generation(id))}
end

-- note_waiter: who asks for what is pending already is woken as well (B9). A token is one waiter,
-- with the URL that came with it last (see wake_waiters).
local function note_waiter(id)
  if wake_token == '' then return end
  local waiters = call('SMEMBERS', K.waiters(id))
  local kept = #waiters
  for _, waiter in ipairs(waiters) do
    if string.match(waiter, '^%S+') == wake_token then
      if wake_url == '' then return end
      call('SREM', K.waiters(id), waiter)
      kept = kept - 1
    end
  end
  if kept >= WAITERS_MOST then return end
  call('SADD', K.waiters(id), wake_url == '' and wake_token or wake_token .. ' ' .. wake_url)
end

-- note_pending: its record ends by itself, what stands for its digest with its job.
local function note_pending(id)
  call('HSET', K.generation(id), 'team_id', team_id, 'status', 'pending')
  call('PEXPIRE', K.generation(id), PENDING_TTL_MS)
end

local sent = call('HGET', K.generation(job_id), 'team_id')
if sent == team_id then return answer('OK', ticket_wanted(ticket_cap), job_id) end
if sent or call('EXISTS', K.job(job_id), K.prompt(prompt_id)) > 0 then return {'TAKEN'} end

local now = now_ms()
local submits = K.submits(team_id)
if not call('ZSCORE', submits, job_id) then
  local since = '(' .. int(now - WINDOW_MS)
  local over = call('ZCOUNT', submits, since, int(now)) - tonumber(per_minute)
  if over >= 0 then
    tally('limit:throttle')
    local leaves = call('ZRANGEBYSCORE', submits, since, int(now), 'WITHSCORES', 'LIMIT',
      int(over), 1)
    return {'THROTTLED', int(tonumber(leaves[2]) + WINDOW_MS - now)}
  end
  call('ZADD', submits, int(now), job_id)
  call('ZREMRANGEBYSCORE', submits, '-inf', int(now - WINDOW_MS))
  call('PEXPIRE', submits, WINDOW_MS)
end

if call('SISMEMBER', K.flag(flag), org_id) == 0 then return {'UNAVAILABLE'} end

local known = call('GET', K.generation_of(digest))
local status = known and call('HGET', K.generation(known), 'status')
if known and not status and not ENDED[call('HGET', K.job(known), 'state') or 'failed'] then
  note_pending(known) -- it outlived its record
  status = 'pending'
end
if status then
  if status == 'pending' then note_waiter(known) end
  return answer('DUPLICATE', 0, known)
end

if refusal ~= '' then
  local ttl = answer_generation(job_id, team_id, refusal, {})
  call('SET', K.generation_of(digest), job_id, 'PX', ttl)
  tally('failed:' .. refusal)
  return answer('OK', 0, job_id)
end

-- What may have been spent counts as spent; without a cap there are no credits (B7).
local r = call('HMGET', K.credits(org_id), 'cap', 'spent', 'reserved', 'unsettled')
local used = tonumber(r[2] or '0') + tonumber(r[3] or '0') + tonumber(r[4] or '0')
local cap = tonumber(r[1] or '0')
if used >= cap or used + tonumber(reserve) > cap then
  answer_generation(job_id, team_id, 'quota_exceeded', {})
  tally('failed:quota_exceeded')
  return answer('OK', 0, job_id)
end

local job = {id = job_id, prompt_id = prompt_id, org_id = org_id, created_by = USER,
  kind = 'generation', target = target, priority = 50, attempt = 1, created_at = now,
  team_id = team_id, reserved = tonumber(reserve)}
if second_target ~= '' then job.second_target = second_target end
note_pending(job_id)
call('SET', K.generation_of(digest), job_id)
note_waiter(job_id)
call('HSET', K.prompt(prompt_id), 'org_id', org_id, 'created_by', USER, 'created_at', int(now),
  'job_id', job_id)
call('SET', K.text(prompt_id), text)
call('SET', K.options(job_id), options)
call('ZADD', K.orgs(), 0, org_id)
add_credits(job, job.reserved, 0, 0)
local expires_at = int(now + QUEUE_MOST_MS)
local fields, field = new_record(job, '1', schema_version)
field('reserved', reserve)
field('digest', digest)
field('expires_at', expires_at)
move(job, 'queued', 'submit', now, '', fields)
enter_lane(job)
call('ZADD', K.expiring(), expires_at, job_id)
return answer('OK', ticket_wanted(ticket_cap), job_id)
