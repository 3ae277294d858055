-- write_off: what is unsettled of an organisation and of these teams of it counts as not spent; a
-- late booking sees by `written_off` that it is gone (B17).
-- ARGV: org_id team_ids*
-- Returns how many micro-dollars of the organisation that were.
local now = now_ms()
local held = tonumber(call('HGET', K.credits(org_id), 'unsettled') or '0')
call('HSET', K.credits(org_id), 'unsettled', '0')
call('HINCRBY', K.credits(org_id), 'written_off', 1)
for _, team_id in ipairs(team_ids) do
  local own = call('HGET', K.team_credits(team_id), 'unsettled') or '0'
  if own ~= '0' then
    call('HSET', K.team_credits(team_id), 'unsettled', '0')
    note_credits({team_id = team_id}, '{"event":"credits_written_off","properties":{"team_id":"'
      .. team_id .. '","usd_micros":' .. own .. '}}', now)
  end
end
return held
