-- waiting: why does a queued job wait? (X14)
-- ARGV: id
-- Returns {reason, until_ms or '', ahead or ''}; {''} where it does not wait. Writes nothing.
local MOST = 1000
local job = fetch(id)
if not job or job.state ~= 'queued' then return {''} end
local run_at = call('ZSCORE', K.scheduled(), id)
if run_at then
  local reason = job.error_kind and 'backoff' or 'schedule'
  return {reason, run_at, ''}
end
if call('ZSCORE', K.blocked(), id) then return {'dependency', '', ''} end
local lane = lane_of(job)
local gate = call('HGET', K.shut_by(), lane)
local reason = gate and string.match(gate, '^[^:]*') or 'queue'
local until_ms = ''
if reason == 'provider_cooldown' then
  until_ms = call('ZSCORE', K.cooldowns(), string.match(gate, ':(.*)$')) or ''
end
local rank = call('ZRANK', K.ready(lane), id) or 0
return {reason, until_ms, int(math.min(rank, MOST))}
