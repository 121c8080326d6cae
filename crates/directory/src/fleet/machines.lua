-- What machines say of themselves, and what operators want of them.
-- KEYS: reports, and orders, by machine. ARGV: the machine, its report or '', whether it is drained; whom an order is about or '',
-- whether that is to be drained; whether all are to be listed. Flags are '0' or '1'.
-- Answers: whether the machine is to be drained, whether the order is about a machine that is known; of each machine that is
-- listed its name, ms since it was heard of or -1, whether it is to be drained, its report.
local KEEP, MOST, MACHINES, REPORT, NAME = 3600000, 10000, 256, 8192, 64
local reports, orders, machine, report, drained = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local whom, wish, is_list = ARGV[4], ARGV[5], ARGV[6] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- More than there can be were not written by machines, which tell their own again.
if redis.call('HLEN', reports) > MOST then redis.call('DEL', reports) end
if report ~= '' then
  redis.call('HSET', reports, machine, string.format('%.0f %s', now, report))
  redis.call('PEXPIRE', reports, KEEP)
end

local is_known = 1
if whom ~= '' then
  if redis.call('HEXISTS', reports, whom) + redis.call('HEXISTS', orders, whom) == 0 then
    is_known = 0
  elseif redis.call('HLEN', orders) < MOST then
    redis.call('HSET', orders, whom, wish)
  end
end

-- A store that has lost the order is told it by who is drained; one that is over is forgotten when it was heard.
local order = redis.call('HGET', orders, machine)
if not order and drained == '1' and report ~= '' then
  redis.call('HSET', orders, machine, '1')
  order = '1'
elseif order == '0' and drained == '0' and report ~= '' then
  redis.call('HDEL', orders, machine)
end

local answer = {order == '1' and 1 or 0, is_known}
if not is_list then return answer end
local known, names = {}, {}
local function machine_of(name)
  if not known[name] and #names < MACHINES and #name <= NAME then
    known[name] = {heard = -1, drained = 0, report = ''}
    names[#names + 1] = name
  end
  return known[name] or {}
end
local all = redis.call('HGETALL', reports)
for at = 1, #all, 2 do
  local heard, text = string.match(all[at + 1], '^(%d+) (.*)$')
  heard = tonumber(heard or '')
  if not heard or now - heard > KEEP or #text > REPORT then
    redis.call('HDEL', reports, all[at])
  else
    local it = machine_of(all[at])
    it.heard, it.report = math.max(now - heard, 0), text
  end
end
all = redis.call('HGETALL', orders)
for at = 1, #all, 2 do
  if all[at + 1] == '1' then machine_of(all[at]).drained = 1 end
end
table.sort(names)
for _, name in ipairs(names) do
  local it = known[name]
  for _, value in ipairs({name, it.heard, it.drained, it.report}) do answer[#answer + 1] = value end
end
return answer
