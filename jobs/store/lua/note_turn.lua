-- note_turn: an attempt of a chat turn begins with its plan (C18); only for the holder of its
-- lease.
-- ARGV: id token plan attempt
-- Returns OK, MISSING or LEASE_LOST; writes nothing unless OK. Repeated it tells no second event.
local job = fetch(id)
if not job then return 'MISSING' end
if job.state ~= 'running' or job.worker_claim ~= token then return 'LEASE_LOST' end
local request = request_of(job)
if call('EXISTS', K.request_plan(request)) == 1 then return 'OK' end
call('SET', K.request_plan(request), plan)
if job.kind == 'escalation' then tell_retry(job, request, 'attempt', attempt, '', now_ms()) end
return 'OK'
