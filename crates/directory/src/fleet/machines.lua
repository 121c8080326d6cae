-- What machines say of themselves, and what operators want of them.
-- KEYS: reports, and orders, by machine. ARGV: the machine, the gateway that is that, its report or '', whether it is drained, whether
-- it was told of before; whom an order is about or '', whether that is to be drained; whether all are to be listed. Flags are '0' or '1'.
-- Answers: whether the machine is to be drained, whether several gateways say that they are it, what became of the order (0: no such
-- machine, 1: kept, 2: it would be about several); of each machine that is listed its name, ms since it was heard of or -1, whether
-- it is to be drained, whether it is several, its report.
local KEEP, MOST, MACHINES, REPORT, NAME = 3600000, 10000, 256, 8192, 64
-- How long an order is kept of a machine that is not heard of, after how long who is drained has it kept anew, and how long it is known
-- that there are several of one name.
local ORDERS, RENEW, SEVERAL = 2592000000, 86400000, 15000
local reports, orders, machine, gateway, report = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local is_drained, is_again = ARGV[4] == '1', ARGV[5] == '1'
local whom, wish, is_list = ARGV[6], ARGV[7], ARGV[8] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- What was heard of a machine: when, of which gateway, and when gateways took turns.
local function heard_in(value)
  local at, of, turned, text = string.match(value or '', '^(%d+) (%x+) (%d+) (.*)$')
  if at and now - at <= KEEP and #text <= REPORT then
    return {at = tonumber(at), gateway = of, turned = tonumber(turned), report = text}
  end
end
local function heard_of(name) return heard_in(redis.call('HGET', reports, name)) end
local function is_several(it) return it and math.abs(now - it.turned) < SEVERAL end

-- What is wished of a machine, and for how long.
local function wish_in(value)
  local is_wished, at = string.match(value or '', '^([01]) (%d+)$')
  if is_wished and now - at <= ORDERS then return is_wished, now - at end
end
local function order_of(name) return wish_in(redis.call('HGET', orders, name)) end
local function order(name, is_wished)
  redis.call('HSET', orders, name, string.format('%s %.0f', is_wished, now))
  redis.call('PEXPIRE', orders, ORDERS)
end

-- More than there can be were not written by machines, which tell their own again.
for _, key in ipairs(KEYS) do
  if redis.call('HLEN', key) > MOST then redis.call('DEL', key) end
end
if report ~= '' then
  local was = heard_of(machine)
  local turned = was and was.turned or 0
  -- One that is started again never comes back after another.
  if is_again and was and was.gateway ~= gateway then turned = now end
  redis.call('HSET', reports, machine, string.format('%.0f %s %.0f ', now, gateway, turned) .. report)
  redis.call('PEXPIRE', reports, KEEP)
end

local became = 1
if whom ~= '' then
  local it = heard_of(whom)
  if wish == '1' and is_several(it) then
    became = 2
  elseif not it and not order_of(whom) then
    became = 0
  else
    order(whom, wish)
  end
end

-- A store that has lost the order is told it by who is drained; one that is over is forgotten when it was heard. Of several of one name
-- none begins to be drained, and what one has heard of its end is told to all.
local several = is_several(heard_of(machine))
local wished, age = order_of(machine)
if report ~= '' then
  if is_drained and (not wished and not several or wished == '1' and age > RENEW) then
    order(machine, '1')
    wished = '1'
  elseif wished == '0' and not is_drained then
    redis.call('HDEL', orders, machine)
  end
end
local to_drain = wished == '1' and (is_drained or not several)

local answer = {to_drain and 1 or 0, several and 1 or 0, became}
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
