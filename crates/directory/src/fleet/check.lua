-- Tries the commands that the other scripts use, and leaves nothing behind. KEYS: three to try them with, and further ones to be
-- deleted. ARGV: a list to leave a word in for a minute, or ''. Answers: the commands that are refused to this account, or the
-- error where the store refuses them to everybody.
local text, hash, list = KEYS[1], KEYS[2], KEYS[3]
local refused, words = {}, {
  {'DEL', unpack(KEYS)}, {'TIME'}, {'INFO', 'server'}, {'SET', text, 'x', 'PX', '60000'}, {'GET', text}, {'HSET', hash, 'x', 'x'},
  {'PEXPIRE', hash, '60000'}, {'HGET', hash, 'x'}, {'HGETALL', hash}, {'HLEN', hash}, {'HDEL', hash, 'x'}, {'RPUSH', list, 'x'},
  {'LTRIM', list, '-1', '-1'}, {'LRANGE', list, '0', '-1'}, {'DEL', text, hash, list},
}
if ARGV[1] ~= '' then
  words[#words + 1] = {'RPUSH', ARGV[1], 'x'}
  words[#words + 1] = {'PEXPIRE', ARGV[1], '60000'}
end
for _, command in ipairs(words) do
  local said = redis.pcall(unpack(command))
  local why = type(said) == 'table' and said.err
  for _, to_all in ipairs({'READONLY', 'NOREPLICAS', 'MISCONF', 'OOM', 'LOADING'}) do
    if why and why:find(to_all, 1, true) then return redis.error_reply(why) end
  end
  if why then refused[#refused + 1] = command[1] end
end
return refused
