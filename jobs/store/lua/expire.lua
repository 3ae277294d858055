-- expire: fail a queued job that may never run: two moves, two events, no attempt counted.
-- ARGV: id kind message
-- Returns OK, MISSING or WRONG_STATE; OK as well where this already happened.
local job = fetch(id)
if not job then return 'MISSING' end
if job.state == 'failed' and job.last_verb == 'expire' then return 'OK' end
if job.state ~= 'queued' then return 'WRONG_STATE' end
local now = now_ms()
leave_queue(job)
move(job, 'running', 'expire', now, kind, {'claimed_at', int(now)})
local fields = {'last_verb', 'expire'}
note_error(id, kind, message, fields)
audit(job, 'expire', kind, now)
move(job, 'failed', 'expire', now, kind, fields)
return 'OK'
