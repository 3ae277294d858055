-- quota: how many jobs of an org may run at once; '' lifts the limit (A31).
-- ARGV: org_id most ticket_cap
-- Returns {OK, wanted}.
if most == '' then
  call('HDEL', K.quotas(), org_id)
else
  call('HSET', K.quotas(), org_id, most)
end
reopen_gate('org_quota:' .. org_id, now_ms())
return {'OK', opened > 0 and ticket_wanted(ticket_cap) or 0}
