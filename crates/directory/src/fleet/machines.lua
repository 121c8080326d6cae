-- What machines say of themselves, and what operators want of them.
-- KEYS: reports, and orders, by machine. ARGV: the machine, the gateway that is that, its report or '', whether it is drained; whom
-- an order is about or '', whether that is to be drained; whether all are to be listed. Flags are '0' or '1'.
-- Answers: whether the machine is to be drained, whether several gateways say that they are it, what became of the order (0: no such
-- machine, 1: kept, 2: it would be about several); of each machine that is listed its name, ms since it was heard of or -1, whether
-- it is to be drained, whether it is several, its report.
local KEEP, MOST, MACHINES, REPORT, NAME = 3600000, 10000, 256, 8192, 64
-- How long an order is kept of a machine that is not heard of, and how long it is known that there are several of one name.
local ORDERS, SEVERAL = 2592000000, 15000
local reports, orders, machine, gateway, report, drained = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local whom, wish, is_list = ARGV[5], ARGV[6], ARGV[7] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What was heard of a machine: when, of which gateway, of which one before that, and when these took turns.
local function heard_in(value)
  local at, of, before, turned, text = string.match(value or '', '^(%d+) (%x+) (%x+) (%d+) (.*)$')
  if at and now - at <= KEEP and #text <= REPORT then
    return {at = tonumber(at), gateway = of, before = before, turned = tonumber(turned), report = text}
  end
end
local function heard_of(name) return heard_in(redis.call('HGET', reports, name)) end
local function is_several(it) return it and math.abs(now - it.turned) < SEVERAL end

local function wish_in(value)
  local is_wished, at = string.match(value or '', '^([01]) (%d+)$')
  return is_wished and now - at <= ORDERS and is_wished
end
local function order_of(name) return wish_in(redis.call('HGET', orders, name)) end
local function order(name, is_wished)
  redis.call('HSET', orders, name, string.format('%s %.0f', is_wished, now))
  redis.call('PEXPIRE', orders, ORDERS)
end

-- More than there can be were not written by machines, which tell their own again.
if redis.call('HLEN', reports) > MOST then redis.call('DEL', reports) end
if report ~= '' then
  local was, before, turned = heard_of(machine), '0', 0
  if was then
    before, turned = was.before, was.turned
    if was.gateway ~= gateway then
      -- One that is started again never comes back after another.
      if was.before == gateway then turned = now end
      before = was.gateway
    end
  end
  redis.call('HSET', reports, machine, string.format('%.0f %s %s %.0f ', now, gateway, before, turned) .. report)
  redis.call('PEXPIRE', reports, KEEP)
end

local became = 1
if whom ~= '' then
  local it = heard_of(whom)
  if wish == '1' and is_several(it) then
    became = 2
  elseif not it and not order_of(whom) then
    became = 0
  elseif redis.call('HLEN', orders) < MOST then
    order(whom, wish)
  end
end

-- A store that has lost the order is told it by who is drained; one that is over is forgotten when it was heard.
local wished = order_of(machine)
if not wished and drained == '1' and report ~= '' then
  order(machine, '1')
  wished = '1'
elseif wished == '0' and drained == '0' and report ~= '' then
  redis.call('HDEL', orders, machine)
end

local answer = {wished == '1' and 1 or 0, is_several(heard_of(machine)) and 1 or 0, became}
if not is_list then return answer end
local known, names = {}, {}
local function machine_of(name)
  if not known[name] and #names < MACHINES and #name <= NAME then
    known[name] = {ago = -1, drained = 0, several = 0, report = ''}
    names[#names + 1] = name
  end
  return known[name] or {}
end
local all = redis.call('HGETALL', reports)
for at = 1, #all, 2 do
  local heard = heard_in(all[at + 1])
  if heard then
    local it = machine_of(all[at])
    it.ago, it.report = math.max(now - heard.at, 0), heard.report
    it.several = is_several(heard) and 1 or 0
  else
    redis.call('HDEL', reports, all[at])
  end
end
all = redis.call('HGETALL', orders)
for at = 1, #all, 2 do
  local is_wished = wish_in(all[at + 1])
  if is_wished == '1' then machine_of(all[at]).drained = 1 end
  if not is_wished then redis.call('HDEL', orders, all[at]) end
end
table.sort(names)
for _, name in ipairs(names) do
  local it = known[name]
  for _, value in ipairs({name, it.ago, it.drained, it.several, it.report}) do answer[#answer + 1] = value end
end
return answer
