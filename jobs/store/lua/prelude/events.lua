-- tell: append an event under its number to an organisation's stream (A21). `told` is name,
-- value, name, value.
local function tell(org_id, seq, told)
  local events = K.events(org_id)
  local is_new = call('PEXPIRE', events, EVENTS_TTL_MS) == 0
  if is_new then
    -- Who has seen the event before a new stream misses nothing that expired.
    told[#told + 1] = 'prev'
    told[#told + 1] = call('ZRANGE', K.changed(org_id), 0, 0, 'REV', 'WITHSCORES')[2] or '0'
  end
  call('XADD', events, 'MAXLEN', '~', EVENTS_KEPT, seq .. '-0', unpack(told))
  if is_new then call('PEXPIRE', events, EVENTS_TTL_MS) end
end
