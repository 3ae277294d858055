-- seq_at: which of an org's numbers were given before an instant? A binary search (A20).
-- ARGV: org_id at_ms
-- Returns the last number of the jobs whose last move was before at_ms, '0' for none: all that
-- changed since has a higher one. Writes nothing.
local changed = K.changed(org_id)
local low, high = 0, call('ZCARD', changed)
while low < high do
  local middle = math.floor((low + high) / 2)
  local id = call('ZRANGE', changed, middle, middle)[1]
  local moved_at = tonumber(call('HGET', K.job(id), 'updated_at') or '0')
  if moved_at < tonumber(at_ms) then low = middle + 1 else high = middle end
end
if low == 0 then return '0' end
return call('ZRANGE', changed, low - 1, low - 1, 'WITHSCORES')[2]
