-- take_deliveries: lease what is due to be posted, and has room and no pause where it goes.
-- ARGV: token count lease_ms
-- Returns {due_at, now, delivery...}: due_at is the ms of the next look, '' where nothing waits;
-- a delivery is {id, lease, failures of its hook, body, record}. Repeated with its token it
-- answers the same. What was tried for as long as it may be is given up here.
local LOOK = 200 -- places looked at in one call
local MOST = 100 -- deliveries leased in one call

local function answer(id, lease, hook)
  return {id, lease, call('HGET', K.health(hook), 'failures') or '0',
    call('GET', K.delivery_body(id)) or '', call('HGETALL', K.delivery(id))}
end

local function reply(now, taken)
  local due = next_delivery()
  return {due and int(due) or '', int(now), unpack(taken)}
end

-- note_unsettled: whoever held the last lease did not come back; that was a try as well, though
-- none of those after a replay.
local function note_unsettled(id, now)
  call('HINCRBY', K.delivery(id), 'tries', 1)
  if call('HDEL', K.delivery(id), 'replayed_at') == 0 then
    call('HINCRBY', K.delivery(id), 'step', 1)
  end
  call('LPUSH', K.delivery_log(id), int(now) .. '|unsettled|')
  call('LTRIM', K.delivery_log(id), 0, DELIVERY_LOG_KEPT - 1)
  call('PEXPIRE', K.delivery_log(id), call('PTTL', K.delivery(id)))
end

-- head_of: whose turn it is in a set, or nil.
local function head_of(key, now)
  return call('ZRANGEBYSCORE', key, '-inf', int(now), 'LIMIT', 0, 1)[1]
end

-- may_go: whether hook, receiver and origin take one more now.
local function may_go(places, now)
  for level = 1, 3 do
    if not places[level] or may_post_at(places, level, now) > now then return false end
  end
  return true
end

local now = now_ms()
local known = call('LRANGE', K.claim(token), 0, -1)
if known[1] then
  local taken = {}
  for n, id in ipairs(known) do
    local r = call('HMGET', K.delivery(id), 'lease', 'hook')
    if r[1] == token .. '.' .. n then taken[#taken + 1] = answer(id, r[1], r[2]) end
  end
  return reply(now, taken)
end
local due = next_delivery()
if not due or due > now then return reply(now, {}) end

give_back()
local taken, ids = {}, {}
local want = math.min(tonumber(count), MOST)
for _ = 1, LOOK + want do
  local origin = #taken < want and head_of(K.origins(), now)
  if not origin then break end
  local receiver = head_of(K.origin(origin), now)
  local hook = receiver and head_of(K.receiver(receiver), now)
  local places, was_served = {hook, receiver, origin}, false
  local id = may_go(places, now) and head_of(K.hook(hook), now)
  local r = id and call('HMGET', K.delivery(id), 'state', 'kind', 'gives_up_at', 'lease')
  if id and r[1] ~= 'pending' then
    call('ZREM', K.hook(hook), id)
  elseif id then
    if r[4] then note_unsettled(id, now) end
    if tonumber(r[3]) <= now then
      end_delivery(id, r[2], hook, 'given_up', now)
    else
      local lease, until_at = token .. '.' .. (#taken + 1), int(now + tonumber(lease_ms))
      call('ZADD', K.hook(hook), until_at, id)
      for _, name in ipairs(places) do
        call('ZREMRANGEBYSCORE', K.posting(name), '-inf', int(now))
        call('ZADD', K.posting(name), until_at, id)
        call('PEXPIRE', K.posting(name), lease_ms)
      end
      call('HSETNX', K.delivery(id), 'first_at', int(now))
      call('HSET', K.delivery(id), 'lease', lease, 'due_at', until_at)
      ids[#ids + 1] = id
      taken[#taken + 1] = answer(id, lease, hook)
      was_served = true
    end
  end
  place_path(places, now, was_served)
end
if ids[1] then
  call('RPUSH', K.claim(token), unpack(ids))
  call('PEXPIRE', K.claim(token), CLAIM_TTL_MS)
end
return reply(now, taken)
