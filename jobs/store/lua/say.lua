-- say: pieces of a streamed turn go to whoever listens; only by the holder of its lease (C9).
-- ARGV: id token request run first pieces*
-- `pieces` is what, text, what, text; `first` is the number of the first one in its `run`. What was
-- said before is not said again. Returns OK or LEASE_LOST.
local r = call('HMGET', K.job(id), 'state', 'worker_claim')
if r[1] ~= 'running' or r[2] ~= token then return 'LEASE_LOST' end
local last = call('XREVRANGE', K.tokens(request), '+', '-', 'COUNT', 1)[1]
local said_run, said = string.match(last and last[1] or '0-0', '(%d+)-(%d+)')
for n = 1, #pieces, 2 do
  local number = tonumber(first) + (n - 1) / 2
  if tonumber(run) > tonumber(said_run) or number > tonumber(said) then
    call('XADD', K.tokens(request), 'MAXLEN', '~', TOKENS_KEPT, run .. '-' .. int(number), 'what',
      pieces[n], 'text', pieces[n + 1])
  end
end
call('PEXPIRE', K.tokens(request), TOKENS_TTL_MS)
return 'OK'
