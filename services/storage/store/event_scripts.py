"""The scripts of the event log: each runs on the two keys of one run, in one round trip.

KEYS[1] is a stream. The event with sequence n is its entry n-0; an entry n-1 marks a log that was ended after
the event n without a last one. Each entry says what has come up to and with it, so that the newest tells
all, and one that is oldest what was cut before it. KEYS[2] is the reply so far.

A server short of memory may have evicted either of the two: then the log is no longer whole.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

APPENDED, ENDED, GAP = 0, 1, 2
"""What came of an append; of any but APPENDED nothing was stored."""

BEFORE_ANY = "0-1"
ENDED_BEFORE_ANY: dict[Any, Any] = {"payload": "", "reply": "", "reply_bytes": "0", "bytes": "0", "last": "1"}
"""The entry, and its id, of a log that ended without an event."""

_OUTCOMES = f"""
local APPENDED, ENDED, GAP = {APPENDED}, {ENDED}, {GAP}
"""

_ENTRIES = """
local function entry(raw)
  local field = raw[2]
  return {
    sequence = tonumber(string.match(raw[1], '^%d+')),
    payload = field[2],
    reply = field[4],
    reply_bytes = tonumber(field[6]),
    bytes = tonumber(field[8]),
    last = field[10] == '1',
  }
end

local function add(id, log, payload, reply)
  redis.call('XADD', KEYS[1], id, 'payload', payload, 'reply', reply,
    'reply_bytes', string.format('%.0f', log.reply_bytes), 'bytes', string.format('%.0f', log.bytes),
    'last', log.last and '1' or '0')
end

local function oldest()
  local raw = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  return raw and entry(raw)
end

local function newest()
  local raw = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  return raw and entry(raw) or {sequence = 0, reply_bytes = 0, bytes = 0, last = false}
end

-- A reply past its limit was cut at a character, which has up to four bytes.
local function is_whole(log, max_reply)
  local kept = redis.call('STRLEN', KEYS[2])
  if log.reply_bytes <= max_reply then return kept == log.reply_bytes end
  return kept > max_reply - 4 and kept <= max_reply
end
"""

_APPEND = (
    _OUTCOMES
    + _ENTRIES
    + """
local live_ms, ended_ms = ARGV[1], ARGV[2]
local max_events, max_bytes, max_reply = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local first_event, event_overhead = 7, tonumber(ARGV[6])

local function keep_reply(kept, piece)
  local room = max_reply - kept
  if room < 0 or #piece == 0 then return end
  if #piece > room then
    while room > 0 and math.floor(string.byte(piece, room + 1) / 64) == 2 do room = room - 1 end
    piece = string.sub(piece, 1, room)
  end
  redis.call('APPEND', KEYS[2], piece)
end

local function size(payload, reply)
  return #payload + #reply + event_overhead
end

local function trim(log)
  if log.sequence <= max_events and log.bytes <= max_bytes then return end
  local low, high = math.max(oldest().sequence, log.sequence - max_events + 1), log.sequence
  while low < high do
    local middle = math.floor((low + high) / 2)
    local id = string.format('%.0f-0', middle)
    local event = entry(redis.call('XRANGE', KEYS[1], id, id)[1])
    local bytes_before = event.bytes - size(event.payload, event.reply)
    if log.bytes - bytes_before <= max_bytes then high = middle else low = middle + 1 end
  end
  redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-0', low))
end

local log = newest()
if not is_whole(log, max_reply) then
  redis.call('UNLINK', KEYS[1], KEYS[2])
  log = newest()
end

local stored = log.sequence
local sequence, last = stored, log.last
for i = first_event, #ARGV, 4 do
  local next_sequence = tonumber(ARGV[i])
  if next_sequence > sequence then
    if last then return {ENDED, stored} end
    if next_sequence ~= sequence + 1 then return {GAP, stored} end
    sequence, last = next_sequence, ARGV[i + 1] == '1'
  end
end

for i = first_event, #ARGV, 4 do
  if tonumber(ARGV[i]) > log.sequence then
    local payload, reply = ARGV[i + 2], ARGV[i + 3]
    local reply_before = log.reply_bytes
    log.sequence, log.last = tonumber(ARGV[i]), ARGV[i + 1] == '1'
    log.bytes = log.bytes + size(payload, reply)
    log.reply_bytes = reply_before + #reply
    -- The first write, which a full server refuses: so it refuses all.
    add(ARGV[i] .. '-0', log, payload, reply)
    keep_reply(reply_before, reply)
  end
end

if log.sequence > stored or not log.last then
  trim(log)
  local keep_ms = log.last and ended_ms or live_ms
  redis.call('PEXPIRE', KEYS[1], keep_ms)
  redis.call('PEXPIRE', KEYS[2], keep_ms)
end
return {APPENDED, log.sequence}
"""
)

_END = (
    _ENTRIES
    + """
local log = newest()
if log.last then return end
log.last = true
add(string.format('%.0f-1', log.sequence), log, '', '')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
"""
)

_LAST_SEQUENCE = (
    _ENTRIES
    + """
return newest().sequence
"""
)

_REPLY = (
    _ENTRIES
    + """
if not is_whole(newest(), tonumber(ARGV[1])) then return '' end
return redis.call('GET', KEYS[2]) or ''
"""
)

_READ = (
    _ENTRIES
    + """
local after, limit, max_reply = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local first, log = oldest(), newest()
if not first then return {0, 0, '', {}} end

local through, reply = 0, ''
if after < first.sequence - 1 then
  if not is_whole(log, max_reply) then return {0, 0, '', {}} end
  through = first.sequence - 1
  after = through
  local cut = first.reply_bytes - #first.reply
  if cut > 0 then reply = redis.call('GETRANGE', KEYS[2], 0, cut - 1) end
end

local events, reached = {}, after
for _, raw in ipairs(redis.call('XRANGE', KEYS[1], string.format('%.0f-0', after + 1), '+', 'COUNT', limit)) do
  if string.match(raw[1], '-0$') then
    local event = entry(raw)
    events[#events + 1] = {event.sequence, event.payload, event.last and 1 or 0, event.reply}
    reached = event.sequence
  end
end
return {log.last and reached >= log.sequence and 1 or 0, through, reply, events}
"""
)


class Script:
    """A script that is sent by its digest, and whole only to a server that does not know it yet."""

    def __init__(self, source: str) -> None:
        self._source = source
        # The digest that Redis itself names a script by.
        self._digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, redis: Redis, keys: Sequence[str], *arguments: str | bytes | int) -> Any:
        try:
            return await redis.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await redis.eval(self._source, len(keys), *keys, *arguments)


append = Script(_APPEND)
"""In milliseconds how long a live and an ended log are kept; the most events, bytes and bytes of the reply; what
an event counts beside its texts; then sequence, last, payload and reply of each event. Gives [what came of it, the
last sequence]."""
end = Script(_END)
"""How long it is kept, in milliseconds."""
last_sequence = Script(_LAST_SEQUENCE)
reply = Script(_REPLY)
"""The most bytes of the reply. Gives the reply."""
read = Script(_READ)
"""After which sequence, how many at most, the most bytes of the reply. Gives [whether the log ends here, through
which sequence it was cut or 0, the reply up to there, [sequence, payload, last and reply of each event]]."""
