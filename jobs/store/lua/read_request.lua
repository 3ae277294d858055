-- read_request: all that is kept of a request, as one look.
-- ARGV: id
-- Returns {fields, attempts, note, target, error_kind, error, message, result}, or {} where there
-- is none; '' stands for what is not there. Writes nothing.
local fields = call('HGETALL', K.request(id))
if not fields[1] then return {} end
local r = call('HMGET', K.request(id), 'prompt_id', 'response_id')
return {fields, call('LRANGE', K.request_attempts(id), 0, -1),
  call('GET', K.request_note(id)) or '', call('GET', K.request_target(id)) or '',
  call('HGET', K.job(id), 'error_kind') or '', call('GET', K.error(id)) or '',
  call('GET', K.text(r[1])) or '', r[2] and call('GET', K.text(r[2])) or ''}
