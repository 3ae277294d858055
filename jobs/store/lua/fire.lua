-- fire: a due entry of the clock goes on to its next time, its tick onto the queue of ticks.
-- ARGV: entry due later queues queue meta
-- `due` is the time that the caller saw, in s; `later` the next one, '' for none. Returns OK to
-- one of many callers and EARLY to the others; MISSING where RQ's job of that name is gone.
local score = call('ZSCORE', K.scheduler_due(), entry)
if not score or tonumber(score) ~= tonumber(due) then return 'EARLY' end
if call('EXISTS', RQ.job .. entry) == 0 then return 'MISSING' end
give_back()
if later == '' then
  call('ZREM', K.scheduler_due(), entry)
else
  call('ZADD', K.scheduler_due(), later, entry)
end
call('HSET', RQ.job .. entry, 'meta', meta)
call('SADD', queues, queue)
call('RPUSH', queue, entry)
return 'OK'
