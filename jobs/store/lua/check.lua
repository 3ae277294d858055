-- check: which attempts lost their lease or were cancelled? `held` is id, token, id, token.
-- ARGV: held*
-- Returns the ids whose lease the token no longer holds, each followed by the job's state
-- ('' where it is gone). Writes nothing.
local lost = {}
for i = 1, #held, 2 do
  local r = call('HMGET', K.job(held[i]), 'state', 'worker_claim')
  if r[1] ~= 'running' or r[2] ~= held[i + 1] then
    lost[#lost + 1] = held[i]
    lost[#lost + 1] = r[1] or ''
  end
end
return lost
