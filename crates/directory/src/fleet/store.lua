-- Who may hold how many permits of which key: the store's side of leases (`limits::fleet::StoreModel`).
-- KEYS: what is known of machines, and the keys of claims; each ends with the 16 bytes that it is called by.
-- ARGV: the machine, its run, the number of its word, its lease in ms, how many claims are of permits; of each of these
-- limit, used, keep, need, want, weight; of each of a rate ns for one, us for a burst, want, demand, us that are spent.
-- Answers: ms for which nothing new is given out, machines, the keys the machine is called for; of each claim what it may hold,
-- its part, whether there is less than is wanted, whether others were called to give;
-- of each of a rate how many may begin, us until there is one more, us until there is a whole burst.
-- Or -1: a later word of the holder was heard.
local FORGET, CALM, CALL_KEYS, CALLS = 3600000, 400, 64, 8
local RECORD, SIZE = '>I3I3I3I3I2I1I6', 21
-- Of rates: over how many us demand is told, or in how many it brings so many; for how many such windows a machine is remembered, and
-- what its part brings is kept for it; for which part of one where it was not known; hundredths of one that are kept for others; us
-- until a bucket is full that nothing is known of.
local WINDOW, LEAST, RECENT, CREDIT, FIRST, KEPT, UNKNOWN = 50000, 4, 4, 2, 2, 30, 60000000
local ASKER, ASKER_SIZE = '>I3I3I7', 13
local machine, seq, lease = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local holder = 'h' .. machine .. '.' .. ARGV[2]
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')

-- Of each holder: its machine, number, last word, when that was, its longest lease, when it had that, when it began.
local known, own, all = {}, nil, redis.call('HGETALL', KEYS[1])
local life, last = nil, 0
for at = 1, #all, 2 do
  local field, value = all[at], all[at + 1]
  if field == 'e' then life = value end
  if field == 'n' then last = tonumber(value) end
  local name = string.match(field, '^h(.*)%.')
  local id, word, seen, long, at_long, since = string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if name and id then
    known[#known + 1] = {field = field, name = name, id = tonumber(id), word = tonumber(word), seen = tonumber(seen),
      long = tonumber(long), at_long = tonumber(at_long), since = tonumber(since)}
    if field == holder then own = known[#known] end
  end
end
if own and seq <= own.word then return {-1} end
if not own then
  own = {field = holder, name = machine, id = last + 1, long = 0, at_long = 0, since = now}
  known[#known + 1] = own
end
own.word, own.seen = seq, now
if own.long <= lease or now - own.at_long > own.long * 2 then own.long, own.at_long = lease, now end
local id = own.id
last = math.max(last, id)

local longest, gone, name_of, machines = 1, {}, {}, 0
for _, it in ipairs(known) do
  if now - it.at_long <= it.long * 2 then longest = math.max(longest, it.long) end
  name_of[it.id] = it.name
  if now - it.seen > FORGET then gone[#gone + 1] = it.field end
end
for _, it in ipairs(known) do
  if now - it.seen <= longest then
    local first, overlaps = true, false
    for _, other in ipairs(known) do
      if other.name == it.name and now - other.seen <= longest then
        local is_before = other.since < it.since or other.since == it.since and other.id < it.id
        if is_before then first, overlaps = false, overlaps or other.seen > it.since end
      end
    end
    if first or overlaps then machines = machines + 1 end
  end
end

local was, quiet, heard = string.match(life or '', '^(%x+) (%d+) (%d+)$')
if was == run and (now - tonumber(heard)) * 2 <= longest then
  quiet = math.min(tonumber(quiet), now + longest)
else
  quiet = now + longest
end
-- Before anything is held by this number.
redis.call('HSET', KEYS[1], 'e', string.format('%s %.0f %.0f', run, quiet, now), 'n', string.format('%.0f', last),
  holder, string.format('%.0f %.0f %.0f %.0f %.0f %.0f', id, seq, now, own.long, own.at_long, own.since))
for _, field in ipairs(gone) do redis.call('HDEL', KEYS[1], field) end
local list = KEYS[1] .. 'w'
local called = redis.call('LRANGE', list .. machine, 0, -1)
if #called > 0 then redis.call('DEL', list .. machine) end

local function divide(limit, records, turn, wanted)
  local parts, open, left = {}, {}, limit
  for at, record in ipairs(records) do
    parts[at] = 0
    if wanted(record) > 0 then open[#open + 1] = at end
  end
  local weights
  repeat
    local rest, content, given = {}, 0, 0
    weights = 0
    for _, at in ipairs(open) do weights = weights + records[at].weight end
    for _, at in ipairs(open) do
      if wanted(records[at]) * weights <= left * records[at].weight then
        parts[at], given, content = wanted(records[at]), given + wanted(records[at]), content + 1
      else
        rest[#rest + 1] = at
      end
    end
    open, left = rest, left - given
  until content == 0 or #open == 0
  weights = 0
  for _, at in ipairs(open) do weights = weights + records[at].weight end
  local whole = left
  for _, at in ipairs(open) do
    parts[at] = math.floor(whole * records[at].weight / weights)
    left = left - parts[at]
  end
  for step = 0, math.min(left, #open) - 1 do
    local at = open[(turn + step) % #open + 1]
    parts[at] = parts[at] + 1
  end
  return parts
end

-- What is called in this call, by number of the holder.
local calls, callees = {}, {}
local function call(record, key)
  local keys = calls[record.id]
  if not keys then
    keys = {}
    calls[record.id], callees[#callees + 1] = keys, record.id
  end
  if #keys < CALL_KEYS then keys[#keys + 1] = string.sub(key, -16) end
end

local answer = {math.max(quiet - now, 0), machines, table.concat(called)}
local turn = math.floor(now / math.max(math.floor(longest / 10), 100))
local function needed(record) return record.need end
local function beyond(record) return math.max(record.want - record.need, 0) end
local permits = tonumber(ARGV[5])
for number = 2, permits + 1 do
  local from = 6 + (number - 2) * 6
  local limit, used, keep = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), tonumber(ARGV[from + 2])
  local need, want, weight = tonumber(ARGV[from + 3]), tonumber(ARGV[from + 4]), math.min(tonumber(ARGV[from + 5]), 65535)
  local text = redis.call('GET', KEYS[number]) or ''
  local records, others, total, had = {}, 0, want, 0
  for at = 1, #text, SIZE do
    local of, held, needs, wants, weighs, short, till = struct.unpack(RECORD, text, at)
    till = math.min(till, now + longest)
    if till > now and of == id then
      had = held
    elseif till > now then
      records[#records + 1] = {id = of, held = held, need = needs, want = wants, weight = weighs, short = short, till = till}
      others, total = others + held, total + wants
    end
  end
  local short = total > limit and 1 or 0
  local mine = {id = id, held = 0, need = need, want = want, weight = weight, short = short, till = now + lease}
  records[#records + 1] = mine
  table.sort(records, function(one, other) return one.id < other.id end)
  local parts, left = divide(limit, records, turn, needed), limit
  for _, part in ipairs(parts) do left = left - part end
  for at, more in ipairs(divide(left, records, turn, beyond)) do parts[at] = parts[at] + more end
  local part = 0
  for at, record in ipairs(records) do
    if record == mine then part = parts[at] end
  end
  local coming = 0
  if now < quiet then
    mine.held = math.max(keep, used)
  else
    local free = math.max(limit - others, 0)
    local sure = math.min(keep, math.max(had, free))
    mine.held = math.max(used, sure, math.min(want, part, free))
    for at, it in ipairs(records) do
      if it ~= mine then
        local is_calm = it.short == 0 or now + longest - it.till >= CALM
        local may_be_idle = it.held > it.need or it.held > 0 and is_calm
        local is_lacking = may_be_idle and mine.held < need
        local may_give = is_lacking or it.held > parts[at] and mine.held < math.min(want, part)
        local may_take = mine.held < had and it.held < math.min(it.need, parts[at])
        if is_lacking then coming = 1 end
        if may_give or may_take then call(it, KEYS[number]) end
      end
    end
  end
  local out, ends = {}, 0
  for _, record in ipairs(records) do
    if record ~= mine or mine.held > 0 or want > 0 then
      out[#out + 1] = struct.pack(RECORD, record.id, record.held, record.need, record.want, record.weight, record.short,
        record.till)
      ends = math.max(ends, record.till)
    end
  end
  if #out > 0 then
    redis.call('SET', KEYS[number], table.concat(out), 'PX', string.format('%.0f', ends - now))
  elseif text ~= '' then
    redis.call('DEL', KEYS[number])
  end
  answer[#answer + 1] = mine.held
  answer[#answer + 1] = part
  answer[#answer + 1] = short
  answer[#answer + 1] = coming
end
for number = permits + 2, #KEYS do
  local from = 6 + permits * 6 + (number - permits - 2) * 5
  local each, burst, want = tonumber(ARGV[from]), tonumber(ARGV[from + 1]), tonumber(ARGV[from + 2])
  local demand, spent = tonumber(ARGV[from + 3]), tonumber(ARGV[from + 4])
  local count, next_us, full = 0, quiet * 1000 - now_us, burst
  if next_us <= 0 then
    local text = redis.call('GET', KEYS[number]) or ''
    full = #text > 0 and struct.unpack('>I7', text) or 0
    full = math.max(full, now_us, quiet * 1000 + math.min(burst, UNKNOWN))
    full = math.min(full + math.min(spent, burst), now_us + burst)
    local level = math.floor((now_us + burst - full) * 1000 / each)
    local window_us = math.max(WINDOW, math.floor(each * LEAST / 1000))
    local window = math.floor(window_us * 1000 / each)
    demand = math.min(demand, window, 0xffffff)
    local askers, total, since = {}, demand, now_us - math.floor(window_us / FIRST)
    for at = 8, #text, ASKER_SIZE do
      local of, wants, from_us = struct.unpack(ASKER, text, at)
      if from_us + window_us * RECENT > now_us and from_us <= now_us then
        if of == id then
          since = from_us
        else
          askers[#askers + 1] = {id = of, want = wants, weight = 1, since = from_us}
          total = total + wants
        end
      end
    end
    since = math.max(since, now_us - window_us * CREDIT)
    count = math.min(want, level)
    if demand > 0 then
      local mine = {id = id, want = demand, weight = 1, since = now_us}
      askers[#askers + 1] = mine
      table.sort(askers, function(one, other) return one.id < other.id end)
      if total > window then
        local part = 0
        for at, of in ipairs(divide(window, askers, turn, function(it) return it.want end)) do
          if askers[at] == mine then part = of end
        end
        local own = math.floor((now_us - since) * part / window_us)
        local kept = math.min(math.floor(window * KEPT / 100), math.max(math.floor(burst * 1000 / each) - 1, 0))
        count = math.min(count, math.max(own, level - kept))
        mine.since = math.min(now_us, since + (part > 0 and math.floor(count * window_us / part) or 0))
      end
    end
    full = full + math.ceil(count * each / 1000)
    local out, keep = {struct.pack('>I7', full)}, full - now_us
    for _, it in ipairs(askers) do
      out[#out + 1] = struct.pack(ASKER, it.id, it.want, it.since)
      keep = math.max(keep, window_us * RECENT)
    end
    if keep > 0 then
      redis.call('SET', KEYS[number], table.concat(out), 'PX', string.format('%.0f', math.ceil(keep / 1000)))
    elseif text ~= '' then
      redis.call('DEL', KEYS[number])
    end
    next_us = math.max(full + math.ceil(each / 1000) - now_us - burst, 0)
    full = full - now_us
  end
  answer[#answer + 1] = count
  answer[#answer + 1] = next_us
  answer[#answer + 1] = full
end
table.sort(callees)
for _, callee in ipairs(callees) do
  local name = name_of[callee]
  if name then
    redis.call('RPUSH', list .. name, table.concat(calls[callee]))
    redis.call('LTRIM', list .. name, -CALLS, -1)
    redis.call('PEXPIRE', list .. name, string.format('%.0f', longest))
  end
end
return answer
