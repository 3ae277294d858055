-- expire: fail a queued job that may never run: two moves, two events, no attempt counted.
-- ARGV: id kind message ticket_cap
-- Returns {OK, wanted}, {MISSING} or {WRONG_STATE}; OK as well where this already happened.
local job = fetch(id)
if not job then return {'MISSING', 0} end
if job.state == 'failed' and job.last_verb == 'expire' then return {'OK', 0} end
if job.state ~= 'queued' then return {'WRONG_STATE', 0} end
local now = now_ms()
expire(job, kind, message, now)
return settled(ticket_cap, now)
