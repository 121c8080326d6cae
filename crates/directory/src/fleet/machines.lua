-- What machines say of themselves, and what operators want of them.
-- An order is a number: twice the ms when it was given, and 1 more where the machine is to be drained. Of two the greater holds, whoever
-- has it, so that a word that comes late, or again, changes nothing. One whose time is far ahead would outlast all others: the store reads
-- it as none, and a machine that obeys it is told another, as if that were given now.
-- KEYS: reports, and orders, by machine. ARGV: the machine, the gateway that is that, its report or '', the order that it obeys or 0, whether
-- it was told of before; whom an order is about or '', whether that is to be drained; whether all are to be listed. Flags are '0' or '1'.
-- Answers: the order of the machine or 0, whether that is instead of the one that it obeys, whether several gateways say that they are it,
-- whether the store evicts keys (-1: it does not say), what became of the order (0: no such machine, 1: kept, 2: it would be about
-- several); of each machine that is listed its name, ms since it was heard of or -1, whether it is to be drained, whether it is several,
-- its report.
local KEEP, MOST, MACHINES, REPORT, NAME = 3600000, 10000, 256, 8192, 64
-- How long an order is kept of a machine that is not heard of, and how far ahead it may be; after how long who is drained has it kept
-- anew; and how long it is known that there are several of one name.
local ORDERS, RENEW, SEVERAL = 2592000000, 86400000, 15000
local reports, orders, machine, gateway, report = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local obeyed, is_again = tonumber(ARGV[4]), ARGV[5] == '1'
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

local function order_in(value)
  local to_drain, at = string.match(value or '', '^([01]) (%d+)$')
  if to_drain and math.abs(now - at) <= ORDERS then return at * 2 + to_drain end
end
local function order_of(name) return order_in(redis.call('HGET', orders, name)) or 0 end
-- An order that is given now, after another.
local function order_after(before, wish) return math.max(now, math.floor(before / 2) + 1) * 2 + wish end
local function keep(name, order)
  redis.call('HSET', orders, name, string.format('%d %.0f', order % 2, math.floor(order / 2)))
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
  local it, before = heard_of(whom), order_of(whom)
  if wish == '1' and is_several(it) then
    became = 2
  elseif not it and before % 2 == 0 then
    became = 0
  else
    keep(whom, order_after(before, wish))
  end
end

-- Of several of one name none begins to be drained, and one that is drained goes on alone.
local several, is_drained = is_several(heard_of(machine)), obeyed % 2 == 1
local order, is_ahead = order_of(machine), obeyed / 2 > now + ORDERS
if is_ahead then obeyed = order_after(order, obeyed % 2) end
if several and is_drained then
  if is_ahead then order = obeyed end
elseif report ~= '' and obeyed > order and (is_drained or now - obeyed / 2 <= ORDERS) then
  order = obeyed
  keep(machine, order)
end
if report ~= '' and is_drained and order % 2 == 1 and now - order / 2 > RENEW then
  order = now * 2 + 1
  keep(machine, order)
end
if several and not is_drained and order % 2 == 1 then order = 0 end

local memory = redis.pcall('INFO', 'memory')
memory = type(memory) == 'string' and memory or ''
local most, policy = string.match(memory, 'maxmemory:(%d+)'), string.match(memory, 'maxmemory_policy:(%S+)')
local evicts = -1
if most and policy then evicts = (most == '0' or policy == 'noeviction') and 0 or 1 end

local answer = {order, is_ahead and 1 or 0, several and 1 or 0, evicts, became}
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
  local given = order_in(all[at + 1])
  if not given then
    redis.call('HDEL', orders, all[at])
  elseif given % 2 == 1 then
    machine_of(all[at]).drained = 1
  end
end
table.sort(names)
for _, name in ipairs(names) do
  local it = known[name]
  for _, value in ipairs({name, it.ago, it.drained, it.several, it.report}) do answer[#answer + 1] = value end
end
return answer
