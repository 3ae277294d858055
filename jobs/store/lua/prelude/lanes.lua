-- lane_of: what waits on the same things. A team is `org`, or `org/team`; there are two targets
-- where a job calls two models.
local function lane_of(job)
  local team, targets = job.org_id, job.target
  if job.team_id then team = team .. '/' .. job.team_id end
  if job.second_target then targets = targets .. '>' .. job.second_target end
  return team .. '|' .. job.kind .. '|' .. targets
end

local function parts_of(lane)
  return string.match(lane, '^([^|]*)|([^|]*)|(.*)$')
end

-- place_lane: put the lane where its head and turn say, in `turns` or behind the gate that
-- shut it; a lane that is empty leaves every key. A turn is given once, when a lane fills.
local function place_lane(lane)
  local team = parts_of(lane)
  local head = call('ZRANGE', K.ready(lane), 0, 0, 'WITHSCORES')
  local gate = call('HGET', K.shut_by(), lane)
  local where = gate and K.shut(gate) or K.turns()
  if not head[1] then
    call('ZREM', where, lane)
    call('SREM', K.team_lanes(team), lane)
    if gate then
      call('HDEL', K.shut_by(), lane)
      if call('EXISTS', where) == 0 then call('SREM', K.gates(), gate) end
    end
    return
  end
  local old = call('ZSCORE', where, lane)
  local turn
  if old then
    turn = tonumber(old) % SLOT
  else
    turn = call('INCR', K.turn())
    call('SADD', K.team_lanes(team), lane)
  end
  local score = int(math.floor(tonumber(head[2]) / SLOT) * SLOT + turn)
  if score ~= old then call('ZADD', where, score, lane) end
end

-- enter_lane: a lane that others lead is placed already.
local function enter_lane(job)
  local lane = lane_of(job)
  call('ZADD', K.ready(lane), int(job.priority * SLOT + job.seq), job.id)
  if call('ZRANGE', K.ready(lane), 0, 0)[1] == job.id then place_lane(lane) end
end

-- serve_lane: after a job was taken from `lane`, the whole team goes to the end of the turn,
-- its other lanes in the order they had and this one last: each of them has its turn as well.
local function serve_lane(lane)
  local head = call('ZRANGE', K.ready(lane), 0, 0, 'WITHSCORES')
  if not head[1] then place_lane(lane) end
  local team = parts_of(lane)
  local moved = {}
  local lanes = call('SMEMBERS', K.team_lanes(team))
  for first = 1, #lanes, CHUNK do
    local part = {unpack(lanes, first, math.min(first + CHUNK - 1, #lanes))}
    if #lanes == 1 and part[1] == lane then break end
    for n, score in ipairs(call('ZMSCORE', K.turns(), unpack(part))) do
      if score and part[n] ~= lane then
        moved[#moved + 1] = {lane = part[n], score = tonumber(score)}
      end
    end
  end
  table.sort(moved, function(x, y) return x.score % SLOT < y.score % SLOT end)
  if head[1] then moved[#moved + 1] = {lane = lane, score = tonumber(head[2])} end
  local turn = call('INCRBY', K.turn(), #moved) - #moved
  for first = 1, #moved, CHUNK do
    local scores = {}
    for n = first, math.min(first + CHUNK - 1, #moved) do
      scores[#scores + 1] = int(math.floor(moved[n].score / SLOT) * SLOT + turn + n)
      scores[#scores + 1] = moved[n].lane
    end
    call('ZADD', K.turns(), unpack(scores))
  end
end

-- leave_queue: out of whichever set a queued job is in, for good.
local function leave_queue(job)
  if call('ZREM', K.scheduled(), job.id) == 1 then call('HDEL', K.job(job.id), 'run_at') end
  call('ZREM', K.blocked(), job.id)
  local lane = lane_of(job)
  if call('ZREM', K.ready(lane), job.id) == 1 then place_lane(lane) end
end

-- wait_until: into the scheduled set, or into the lane where the time has come.
local function wait_until(job, run_at, now)
  if run_at > now then
    call('ZADD', K.scheduled(), int(run_at), job.id)
  else
    enter_lane(job)
  end
end
