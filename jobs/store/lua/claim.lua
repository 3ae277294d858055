-- claim: lease the most urgent jobs, each to one attempt (A5).
-- ARGV: token count ceiling window_ms worker ticket_id ticket_names
-- Returns {OK, next_run_at, swept_at, more, now, job...}: next_run_at is '' where nothing is
-- scheduled; more is 1 where the look ended early; a job is {id, token, text, options, record}.
-- {REFUSED, reason} while RQ is suspended or the worker was asked to shut down. A claim that
-- is repeated with its token answers the same jobs and takes none.
local LOOK = 200 -- lanes looked at in one call
local DUE = 100 -- scheduled jobs promoted in one call

local function answer(id, lease, prompt_id)
  return {id, lease, call('GET', K.text(prompt_id)) or '', call('GET', K.options(id)) or '',
    call('HGETALL', K.job(id))}
end

local function ended(more, now, jobs)
  local next_due = call('ZRANGE', K.scheduled(), 0, 0, 'WITHSCORES')
  local reply = {'OK', next_due[2] or '', call('GET', K.swept_at()) or '', more, int(now)}
  for _, job in ipairs(jobs) do reply[#reply + 1] = job end
  return reply
end

local now = now_ms()
local known = call('LRANGE', K.claim(token), 0, -1)
if known[1] then
  local jobs = {}
  for n, id in ipairs(known) do
    local lease = token .. '.' .. n
    local r = call('HMGET', K.job(id), 'worker_claim', 'prompt_id')
    if r[1] == lease then jobs[#jobs + 1] = answer(id, lease, r[2]) end
  end
  return ended(0, now, jobs)
end
if call('EXISTS', RQ.suspended) == 1 then return {'REFUSED', 'suspended'} end
if worker ~= '' and call('HEXISTS', RQ.worker .. worker, 'shutdown_requested_date') == 1 then
  return {'REFUSED', 'shutdown'}
end

local first_due = call('ZRANGE', K.scheduled(), 0, 0, 'WITHSCORES')[2]
local is_due = first_due and tonumber(first_due) <= now
if not is_due and call('EXISTS', K.turns()) == 0 then return ended(0, now, {}) end
call('SET', K.claimed_at(), int(now)) -- at maxmemory this refuses the claim as a whole
local more = 0
if is_due and promote_due(now, DUE) == DUE then more = 1 end

local taken, names, looked = {}, {}, 0
local want = tonumber(count)
while #taken < want do
  local head = call('ZRANGE', K.turns(), 0, 0, 'WITHSCORES')
  if not head[1] then break end
  if math.floor(tonumber(head[2]) / SLOT) > tonumber(ceiling) then break end
  looked = looked + 1
  if looked > LOOK + want then
    more = 1
    break
  end
  local lane = head[1]
  local gate = shut_gate(lane)
  if gate then
    shut_lane(lane, gate, head[2])
  else
    local id = call('ZPOPMIN', K.ready(lane))[1]
    local job = id and fetch(id)
    if job and job.state == 'queued' then
      local lease = token .. '.' .. (#taken + 1)
      call('ZADD', K.running(), int(now + tonumber(window_ms)), id)
      call('HINCRBY', K.running_by_org(), job.org_id, 1)
      move(job, 'running', 'claim', now, '', {'worker_claim', lease, 'claimed_at', int(now),
        'started_at', int(now), 'running_heartbeat_at', int(now)})
      taken[#taken + 1] = job
      if #names < 20 then names[#names + 1] = job.kind .. ' ' .. id end
    end
    serve_lane(lane)
  end
end
local jobs = {}
if taken[1] then
  for n, job in ipairs(taken) do
    call('RPUSH', K.claim(token), job.id)
    jobs[n] = answer(job.id, token .. '.' .. n, job.prompt_id)
  end
  call('PEXPIRE', K.claim(token), CLAIM_TTL_MS)
  local ticket = RQ.job .. ticket_id
  if ticket_id ~= '' and call('EXISTS', ticket) == 1 then
    local running = table.concat(names, ', ')
    if ticket_names ~= '' then running = ticket_names .. ', ' .. running end
    call('HSET', ticket, 'description', running)
  end
end
return ended(more, now, jobs)
