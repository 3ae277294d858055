-- supersede: replace an ended job by a new one for the same prompt (A16).
-- ARGV: id new_id org_id user_id ticket_cap schema_version
-- Returns {OK, wanted}, also when repeated with its own new_id; {MISSING}; {FINAL, ''} where the
-- kind is not retried; {WRONG_STATE, superseded_by or ''}, also where new_id names another job. The old job keeps outcome,
-- error and response; the new one starts at attempt 1 with the old one's options, priority
-- and budget.
local old = fetch(id)
if not old or old.org_id ~= org_id then return {'MISSING', ''} end
if old.kind ~= 'prompt' then return {'FINAL', ''} end
local by = call('HGET', K.job(id), 'superseded_by') or ''
if by == new_id then return {'OK', ticket_wanted(ticket_cap)} end
if old.state == 'superseded' or not ENDED[old.state] then return {'WRONG_STATE', by} end
if call('EXISTS', K.job(new_id)) == 1 then return {'WRONG_STATE', ''} end
local now = now_ms()
local created = int(now)
local job = {id = new_id, prompt_id = old.prompt_id, org_id = org_id, created_by = user_id,
  kind = old.kind, target = old.target, priority = old.priority, attempt = 1, created_at = now}
local root = call('HGET', K.job(id), 'root_id') or id
call('HSET', K.prompt(old.prompt_id), 'job_id', new_id)
call('RPUSH', K.replaced(old.prompt_id), id)
if old.state == 'failed' then note_mirror(id) end
move(old, 'superseded', 'supersede', now, '', {'superseded_by', new_id, 'outcome', old.state})
local options = call('GET', K.options(id))
if options then call('SET', K.options(new_id), options) end
local fields, field = new_record(job, int(old.max_attempts), schema_version)
field('supersedes', id)
field('root_id', root)
move(job, 'queued', 'submit', now, 'supersede', fields)
enter_lane(job)
return {'OK', ticket_wanted(ticket_cap)}
