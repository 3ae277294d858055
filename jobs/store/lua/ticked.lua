-- ticked: what one run of a tick did is written down, for operators and alarms.
-- ARGV: name token interval_ms due_at_ms took_ms count failure
-- due_at_ms is '' where nobody knows it. Returns OK, or DUPLICATE where the run of that token
-- is written down already.
local function field(part) return name .. ':' .. part end
if call('HGET', K.ticks(), field('token')) == token then return 'DUPLICATE' end
local began = now_ms() - tonumber(took_ms)
local late = due_at_ms == '' and 0 or math.max(0, began - tonumber(due_at_ms))
give_back()
call('HSET', K.ticks(), field('token'), token, field('interval_ms'), interval_ms)
if failure ~= '' then
  call('HSET', K.ticks(), field('failure'), failure, field('failed_at_ms'), int(began))
  call('HINCRBY', K.ticks(), field('failures'), 1)
else
  call('HSET', K.ticks(), field('ran_at_ms'), int(began), field('late_ms'), int(late),
    field('took_ms'), took_ms, field('count'), count)
  call('HINCRBY', K.ticks(), field('runs'), 1)
  call('HINCRBY', K.ticks(), field('total'), count)
  call('HDEL', K.ticks(), field('failure'))
end
return 'OK'
