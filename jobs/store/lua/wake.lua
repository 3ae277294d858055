-- wake: a step that waits for its generation looks at it now (B26). The token counts once.
-- ARGV: id token_hash ticket_cap
-- Returns {OK, wanted}, also where it was woken before; {REFUSED, 0} for another token; {MISSING, 0};
-- {WRONG_STATE, 0} where it has ended.
local job = fetch(id)
if not job or job.kind ~= 'step' then return {'MISSING', 0} end
if ENDED[job.state] then return {'WRONG_STATE', 0} end
if call('HGET', K.step(id), 'token_hash') ~= token_hash then return {'REFUSED', 0} end
if call('HSETNX', K.step(id), 'woken', '1') == 0 then return {'OK', 0} end
if call('ZREM', K.scheduled(), id) == 0 then return {'OK', 0} end
call('HDEL', K.job(id), 'run_at')
enter_lane(job)
return {'OK', ticket_wanted(ticket_cap)}
