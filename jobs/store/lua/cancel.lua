-- cancel: end a queued or running job at once (A17); the running call is told by `check`.
-- ARGV: id org_id reason is_request ticket_cap
-- Where it `is_request`, the id of a chat request's first job stands for its current attempt (C15).
-- Returns {OK, wanted} (also where it is cancelled already), {MISSING} or {WRONG_STATE}. Another org's job
-- is MISSING.
local current = is_request ~= '' and call('HGET', K.request(id), 'job')
local job = fetch(current or id)
if not job or job.org_id ~= org_id then return {'MISSING', 0} end
if job.state == 'cancelled' then return {'OK', 0} end
if ENDED[job.state] then return {'WRONG_STATE', 0} end
local now = now_ms()
if job.state == 'running' then
  leave_running(job, now)
else
  leave_queue(job)
end
job.ending = {message = 'This generation was cancelled before it had finished.'}
audit(job, 'cancel', reason, now)
move(job, 'cancelled', 'cancel', now, reason, {})
return settled(ticket_cap, now)
