-- Gates: what a lane may wait behind. `org_quota:<org>`, `provider_cooldown:<target>`,
-- `team_slots:<team>` and `global_slots`; the word in front is what waiting_on says (X14).

-- slots_held: of the calls under a cap, those that may still be on the wire.
local function slots_held(key, now)
  return call('ZCOUNT', key, '(' .. int(now), '+inf')
end

-- room_at: how many lanes a gate could admit now; 0 means that it is shut.
local function room_at(gate, now)
  local reason, of = string.match(gate, '^([^:]*):?(.*)$')
  if reason == 'org_quota' then
    local cap = call('HGET', K.quotas(), of)
    if not cap then return 100 end
    return math.max(0, tonumber(cap) - tonumber(call('HGET', K.running_by_org(), of) or '0'))
  elseif reason == 'team_slots' then
    return math.max(0, SLOTS.team - slots_held(K.team_slots(of), now))
  elseif reason == 'global_slots' then
    return math.max(0, SLOTS.all - slots_held(K.slots(), now))
  end
  local until_ms = call('ZSCORE', K.cooldowns(), of)
  return until_ms and tonumber(until_ms) > now and 0 or 100
end

-- shut_gate: the first shut gate in front of a lane, or nil. What is shared by most comes last:
-- a lane behind it could go on but for that.
local function shut_gate(lane, now)
  local team, kind, targets = parts_of(lane)
  local org, own = string.match(team, '^([^/]*)/?(.*)$')
  local gate = 'org_quota:' .. org
  if room_at(gate, now) == 0 then return gate end
  for target in string.gmatch(targets, '[^>]+') do
    gate = 'provider_cooldown:' .. target
    if room_at(gate, now) == 0 then return gate end
  end
  if kind ~= 'generation' then return nil end
  gate = 'team_slots:' .. own
  if room_at(gate, now) == 0 then return gate end
  if room_at('global_slots', now) == 0 then return 'global_slots' end
end

local function shut_lane(lane, gate, score)
  call('ZREM', K.turns(), lane)
  call('ZADD', K.shut(gate), score, lane)
  call('HSET', K.shut_by(), lane, gate)
  call('SADD', K.gates(), gate)
end

local opened = 0 -- what this script made claimable beside its own job

-- reopen_gate: move as many lanes as have room back into the turn, or behind the next gate that
-- is shut for them; answers how many came into the turn.
local function reopen_gate(gate, now)
  local room, done = math.min(room_at(gate, now), 100), 0
  for _ = 1, 100 do
    local head = room > done and call('ZRANGE', K.shut(gate), 0, 0, 'WITHSCORES') or {}
    if not head[1] then break end
    call('ZREM', K.shut(gate), head[1])
    call('HDEL', K.shut_by(), head[1])
    local next_gate = shut_gate(head[1], now)
    if next_gate then
      shut_lane(head[1], next_gate, head[2])
    else
      call('ZADD', K.turns(), head[2], head[1])
      done = done + 1
    end
  end
  if call('EXISTS', K.shut(gate)) == 0 then call('SREM', K.gates(), gate) end
  opened = opened + done
  return done
end

local function reopen_if_shut(gate, now)
  if call('SISMEMBER', K.gates(), gate) == 1 then reopen_gate(gate, now) end
end

-- take_slots: a call begins under both caps; a lease that nobody frees ends by itself (B18).
local function take_slots(job, lease, now)
  for _, key in ipairs({K.slots(), K.team_slots(job.team_id)}) do
    call('ZADD', key, int(now + SLOT_TTL_MS), lease)
    call('ZREMRANGEBYSCORE', key, '-inf', int(now))
    call('PEXPIRE', key, SLOT_TTL_MS)
  end
end

-- free_slots: the holder of `lease` says that its call is over; nobody else may.
local function free_slots(job, lease, now)
  local held = call('ZREM', K.slots(), lease) + call('ZREM', K.team_slots(job.team_id), lease)
  if held == 0 then return end
  reopen_if_shut('team_slots:' .. job.team_id, now)
  reopen_if_shut('global_slots', now)
end

-- cool_down: a provider asked for a pause; what waits for it spends no attempt meanwhile (X15).
local function cool_down(target, for_ms, now)
  if target == '' then return end
  call('ZADD', K.cooldowns(), 'GT', int(now + tonumber(for_ms)), target)
  call('ZREMRANGEBYSCORE', K.cooldowns(), '-inf', int(now))
  local last = call('ZRANGE', K.cooldowns(), 0, 0, 'REV', 'WITHSCORES')[2]
  if last then call('PEXPIREAT', K.cooldowns(), int(tonumber(last))) end
end

-- next_due: the ms at which something that waits for a time may go on, or nil.
local function next_due(now)
  local due = tonumber(call('ZRANGE', K.scheduled(), 0, 0, 'WITHSCORES')[2])
  local cool = tonumber(call('ZRANGEBYSCORE', K.cooldowns(), '(' .. int(now), '+inf', 'WITHSCORES',
    'LIMIT', 0, 1)[2])
  if due and cool then return math.min(due, cool) end
  return due or cool
end

-- leave_running: the place under the org's quota is free again. `lease` is given where its
-- holder says so, whose call is over; who takes a job away can't know that.
local function leave_running(job, now, lease)
  call('ZREM', K.running(), job.id)
  if call('HINCRBY', K.running_by_org(), job.org_id, -1) <= 0 then
    call('HDEL', K.running_by_org(), job.org_id)
  end
  reopen_if_shut('org_quota:' .. job.org_id, now)
  if lease and job.kind == 'generation' then free_slots(job, lease, now) end
end
