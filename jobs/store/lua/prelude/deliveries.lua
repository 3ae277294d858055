-- Deliveries: the outcomes that are still to be posted (C16, C17). A row is written by the script
-- that ends what it tells of, so that there is exactly one.
--
-- Where they wait is a tree. An origin, scheme://host:port, has receivers: one of each owner that
-- posts there. A receiver has hooks: one for each path. A hook has its pending deliveries. A member
-- of a set is scored by when it is to be looked at: when its next delivery is due, it has room, and
-- its pause is over. Who was served goes to the end of the line, so that owners take turns at an
-- origin, and hooks at a receiver. A hook that fails gets one post at a time, and pauses; beyond
-- that nobody waits for it.

local posts_added = 0 -- by this script

local ORIGIN_POSTS = 8 -- at a time, of all owners: one that hangs can't have all threads
local RECEIVER_POSTS = 2
local HOOKS_FAILED = 2 -- so many in a row, without one that is well, and it's the whole receiver
local RECEIVER_PAUSE_MS = 5000

-- places_of: hook, receiver and origin of an owner's URL. Scheme and host count in lower case, the
-- port is always named; a query makes no other hook.
local function places_of(owner, url)
  local scheme, authority, path = string.match(url, '^(%a+)://([^/?#]*)([^?#]*)')
  local origin = string.sub(string.lower(url), 1, 255)
  if scheme then
    scheme = string.lower(scheme)
    local host = string.lower(string.match(authority, '[^@]*$'))
    if not string.match(host, ':%d+$') then
      host = host .. (scheme == 'https' and ':443' or ':80')
    end
    origin = string.sub(scheme .. '://' .. string.gsub(host, '%.:', ':'), 1, 255)
  end
  local receiver = owner .. '|' .. origin
  if not path or path == '' then path = '/' end
  return {receiver .. path, receiver, origin}
end

-- soonest: the earliest score of a set, or nil.
local function soonest(key)
  return tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
end

-- free_at: when fewer than `most` of this hook, receiver or origin are in flight: now, or when
-- leases end.
local function free_at(name, most, now)
  local leases = call('ZRANGEBYSCORE', K.posting(name), '(' .. int(now), '+inf', 'WITHSCORES')
  local over = #leases / 2 - most
  return over >= 0 and tonumber(leases[2 * (over + 1)]) or now
end

-- may_post_at: when the next of what waits at each of {hook, receiver, origin} may go there.
local function may_post_at(places, level, now)
  local name = places[level]
  if level == 3 then return free_at(name, ORIGIN_POSTS, now) end
  local health = call('HMGET', K.health(name), 'failures', 'paused_until')
  local failures, most = tonumber(health[1] or '0'), RECEIVER_POSTS
  if failures >= (level == 1 and 1 or HOOKS_FAILED) then most = 1 end
  return math.max(free_at(name, most, now), tonumber(health[2] or '0'))
end

-- place_at: score a member by `at`, nil for never. Whose time has come keeps its place in the
-- line, or goes to its end where it was served.
local function place_at(key, member, at, now, was_served)
  if not at then
    call('ZREM', key, member)
    return
  end
  if at <= now then
    local since = tonumber(call('ZSCORE', key, member) or now)
    at = was_served and now or math.min(since, now)
  end
  call('ZADD', key, int(at), member)
end

-- place_path: score a hook, its receiver and its origin anew; hook and receiver are nil where none is
-- due. What has no deliveries leaves every key but its pause, which ends by itself.
local function place_path(places, now, was_served)
  local hook, receiver, origin = places[1], places[2], places[3]
  local steps = {
    {hook and K.hook(hook), receiver and K.receiver(receiver)},
    {receiver and K.receiver(receiver), K.origin(origin)},
    {K.origin(origin), K.origins()},
  }
  for level, step in ipairs(steps) do
    if places[level] then
      local due = soonest(step[1])
      local at = due and math.max(due, may_post_at(places, level, now))
      place_at(step[2], places[level], at, now, was_served)
    end
  end
end

-- next_delivery: the ms at which some origin is to be looked at, or nil.
local function next_delivery()
  return soonest(K.origins())
end

-- note_health: a failure of one hook is its own; those of several in a row, with none between that
-- went well, are the receiver's as well. `pause_ms` is 0 where it is well.
local function note_health(hook, receiver, pause_ms, now)
  if pause_ms == 0 then
    call('DEL', K.health(hook), K.health(receiver))
    return
  end
  if call('HGET', K.health(receiver), 'hook') ~= hook then
    call('HINCRBY', K.health(receiver), 'failures', 1)
    call('HSET', K.health(receiver), 'hook', hook)
  end
  call('HINCRBY', K.health(hook), 'failures', 1)
  call('HSET', K.health(hook), 'paused_until', int(now + pause_ms))
  if tonumber(call('HGET', K.health(receiver), 'failures')) >= HOOKS_FAILED then
    call('HSET', K.health(receiver), 'paused_until', int(now + RECEIVER_PAUSE_MS))
  end
  for _, name in ipairs({hook, receiver}) do
    call('PEXPIRE', K.health(name), HEALTH_MS)
  end
end

-- keep_delivery: all of it ends so long after now.
local function keep_delivery(id, ttl)
  for _, key in ipairs({K.delivery, K.delivery_body, K.delivery_log}) do
    call('PEXPIRE', key(id), int(ttl))
  end
end

-- bounds_of: for how long such a delivery is tried, and kept after its end, in ms.
local function bounds_of(kind)
  if kind == 'wake' then return WAKE_TRIED_MS, WAKE_KEPT_MS end
  return DELIVERY_TRIED_MS, DELIVERY_TTL_MS
end

-- index_delivery: where lists find it. The oldest of too many leave.
local function index_delivery(key, id, now)
  call('ZADD', key, int(now), id)
  call('ZREMRANGEBYRANK', key, 0, -DELIVERIES_KEPT - 1)
  call('PEXPIRE', key, int(DELIVERY_TRIED_MS + DELIVERY_TTL_MS))
end

-- add_delivery: `row` is {id, kind, owner, user, ref, url}, for a wake `wake_token` as well, or
-- `step_state` where a step ended; kind is channel, webhook or wake. Due at once. A second one with
-- the same id changes nothing, and there is none without a URL.
local function add_delivery(row, now)
  if not row.url or call('EXISTS', K.delivery(row.id)) == 1 then return end
  local places = places_of(row.owner, row.url)
  local tried, kept = bounds_of(row.kind)
  call('HSET', K.delivery(row.id), 'state', 'pending', 'kind', row.kind, 'owner', row.owner, 'user',
    row.user or '', 'ref', row.ref, 'url', row.url, 'hook', places[1], 'receiver', places[2],
    'origin', places[3], 'created_at', int(now), 'due_at', int(now),
    'gives_up_at', int(now + tried))
  for _, field in ipairs({'wake_token', 'step_state'}) do
    if row[field] then call('HSET', K.delivery(row.id), field, row[field]) end
  end
  keep_delivery(row.id, tried + kept)
  index_delivery(K.deliveries(row.owner .. '|' .. (row.user or '')), row.id, now)
  index_delivery(K.all_deliveries(), row.id, now)
  call('ZADD', K.hook(places[1]), int(now), row.id)
  place_path(places, now)
  posts_added = posts_added + 1
  call('HINCRBY', K.delivery_stats(), row.kind .. ':pending', 1)
end

-- end_delivery: nothing more is posted, unless somebody replays it. A wake is for nobody after
-- its end: its token is forgotten.
local function end_delivery(id, kind, hook, state, now)
  local _, kept = bounds_of(kind)
  call('ZREM', K.hook(hook), id)
  call('HSET', K.delivery(id), 'state', state, 'ended_at', int(now))
  call('HINCRBY', K.delivery_stats(), kind .. ':pending', -1)
  call('HINCRBY', K.delivery_stats(), kind .. ':' .. state, 1)
  call('HDEL', K.delivery(id), 'due_at', 'lease', 'wake_token')
  if kind == 'wake' then call('DEL', K.delivery_body(id)) end
  keep_delivery(id, kept)
end
