-- wanted: is a ticket wanted? The tick asks, for tickets that were lost.
-- ARGV: ticket_cap
-- Returns 1 or 0. Writes nothing.
return ticket_wanted(ticket_cap)
