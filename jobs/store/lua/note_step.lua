-- note_step: the holder of a running step's lease writes down how far it came.
-- ARGV: id token log result fields*
-- `log` and `result` are JSON, '' to leave them as they are; `fields` is name, value, name, value; an empty value takes the field away. Returns OK, MISSING
-- or LEASE_LOST; writes nothing unless OK.
local job = fetch(id)
if not job then return 'MISSING' end
if job.state ~= 'running' or job.worker_claim ~= token then return 'LEASE_LOST' end
give_back()
if log ~= '' then call('SET', K.step_log(id), log) end
if result ~= '' then call('SET', K.step_result(id), result) end
for n = 1, #fields, 2 do
  if fields[n + 1] == '' then
    call('HDEL', K.step(id), fields[n])
  else
    call('HSET', K.step(id), fields[n], fields[n + 1])
  end
end
return 'OK'
