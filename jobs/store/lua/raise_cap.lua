-- raise_cap: let an organisation spend more (B17). Sent twice it raises once: the second time the
-- cap is no longer what its caller saw.
-- ARGV: org_id before after
-- Returns 1 where the cap is `after` now, 0 where it was neither; '' before is none.
local cap = call('HGET', K.credits(org_id), 'cap') or ''
if cap ~= before then return cap == after and 1 or 0 end
call('HSET', K.credits(org_id), 'cap', after)
return 1
