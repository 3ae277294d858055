-- last_wake: where the stream of wakes ends, whatever its last event holds.
-- ARGV:
-- Returns its id, '0-0' where there is none. Writes nothing.
local newest = call('XREVRANGE', K.wakes(), '+', '-', 'COUNT', 1)
return newest[1] and newest[1][1] or '0-0'
