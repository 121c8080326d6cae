# The methods of Redis. `__run(command, arguments, reply, ...)`: each letter says what an argument is
# (a String, an Integer, a number with or without a fraction; after `*` any number of Strings), and the
# word after it what the reply becomes.
class Redis
  def initialize(host, port = 6379, timeout = 1)
    @host, @port, @keepalive = host, port, :off
    __open(host, port, timeout)
    queue('PING')
    bulk_reply
  end
  def host() __opened; @host end
  def port() __opened; @port end
  def keepalive() __opened; @keepalive end
  def enable_keepalive() __opened; @keepalive = :on; nil end
  def close() @closed = true; __close end
  def __opened() raise ClosedError, 'this Redis object was closed before' if @closed end
  def auth(*words) __login(:auth, *words) end
  def select(database) __login(:select, database) end
  def ping() __run(:PING, '', nil) end
  def get(key) __run(:GET, 's', nil, key) end
  alias [] get
  def set(key, value, options = nil)
    return __run(:SET, 'ss', nil, key, value) if options.nil? || options.empty?
    unknown = options.keys - %w[EX PX NX XX]
    raise ArgumentError, "set has no option #{unknown[0].inspect}: write 'EX', 'PX', 'NX' or 'XX'" unless unknown.empty?
    ex, px, nx, xx = options['EX'], options['PX'], options['NX'], options['XX']
    raise ArgumentError, 'set takes one of EX and PX' if ex && px
    raise ArgumentError, 'set takes one of NX and XX' if nx && xx
    words = []
    words.push('EX', ex.to_s) if ex
    words.push('PX', px.to_s) if px
    words.push('NX') if nx
    words.push('XX') if xx
    __run(:SET, 's*', nil, key, value, *words)
  end
  def []=(key, value) set(key, value) end
  def setnx(key, value) __run(:SETNX, 'ss', :truth, key, value) end
  def exists?(key) __run(:EXISTS, 's', :truth, key) end
  def expire(key, seconds) __run(:EXPIRE, 'si', :truth, key, seconds) end
  def ttl(key) __run(:TTL, 's', nil, key) end
  def keys(pattern) __run(:KEYS, 's', nil, pattern) end
  def del(key, *more) __run(:DEL, 's*', nil, key, *more) end
  def randomkey() __run(:RANDOMKEY, '', nil) end
  def flushdb() __run(:FLUSHDB, '', nil) end
  def flushall() __run(:FLUSHALL, '', nil) end
  def incr(key) __run(:INCR, 's', nil, key) end
  def decr(key) __run(:DECR, 's', nil, key) end
  def incrby(key, by) __run(:INCRBY, 'si', nil, key, by) end
  def decrby(key, by) __run(:DECRBY, 'si', nil, key, by) end
  def mget(key, *more) __run(:MGET, 's*', nil, key, *more) end
  def mset(key, value, *more) __run(:MSET, 's*', nil, key, value, *more) end
  def llen(key) __run(:LLEN, 's', nil, key) end
  def lpush(key, value, *more) __run(:LPUSH, 's*', nil, key, value, *more) end
  def rpush(key, value, *more) __run(:RPUSH, 's*', nil, key, value, *more) end
  def lpop(key) __run(:LPOP, 's', nil, key) end
  def rpop(key) __run(:RPOP, 's', nil, key) end
  def lrange(key, from, to) __run(:LRANGE, 'sii', nil, key, from, to) end
  def ltrim(key, from, to) __run(:LTRIM, 'sii', nil, key, from, to) end
  def lindex(key, index) __run(:LINDEX, 'si', nil, key, index) end
  def sadd(key, member, *more) __run(:SADD, 's*', nil, key, member, *more) end
  def srem(key, member, *more) __run(:SREM, 's*', nil, key, member, *more) end
  def sismember(key, member) __run(:SISMEMBER, 'ss', nil, key, member) end
  def smembers(key) __run(:SMEMBERS, 's', nil, key) end
  def scard(key) __run(:SCARD, 's', nil, key) end
  def spop(key) __run(:SPOP, 's', nil, key) end
  def hset(key, field, value) __run(:HSET, 'sss', :truth, key, field, value) end
  def hsetnx(key, field, value) __run(:HSETNX, 'sss', :truth, key, field, value) end
  def hget(key, field) __run(:HGET, 'ss', nil, key, field) end
  def hgetall(key) __run(:HGETALL, 's', :hash, key) end
  def hdel(key, field, *more) __run(:HDEL, 's*', nil, key, field, *more) end
  def hexists?(key, field) __run(:HEXISTS, 'ss', :truth, key, field) end
  def hkeys(key) __run(:HKEYS, 's', :list, key) end
  def hvals(key) __run(:HVALS, 's', :list, key) end
  def hmget(key, field, *more) __run(:HMGET, 's*', nil, key, field, *more) end
  def hmset(key, field, value, *more)
    raise ArgumentError, 'hmset takes fields and values in pairs' if more.size % 2 == 1
    __run(:HMSET, 's*', nil, key, field, value, *more)
  end
  def hincrby(key, field, by) __run(:HINCRBY, 'ssi', nil, key, field, by) end
  def zadd(key, score, member) __run(:ZADD, 'sfs', nil, key, score, member) end
  def zcard(key) __run(:ZCARD, 's', nil, key) end
  def zrange(key, from, to) __run(:ZRANGE, 'sii', nil, key, from, to) end
  def zrevrange(key, from, to) __run(:ZREVRANGE, 'sii', nil, key, from, to) end
  def zrank(key, member) __run(:ZRANK, 'ss', nil, key, member) end
  def zrevrank(key, member) __run(:ZREVRANK, 'ss', nil, key, member) end
  def zscore(key, member) __run(:ZSCORE, 'ss', nil, key, member) end
  def pfadd(key, *members) __run(:PFADD, 's*', nil, key, *members) end
  def pfcount(key, *more) __run(:PFCOUNT, 's*', nil, key, *more) end
  def pfmerge(key, from, *more) __run(:PFMERGE, 's*', nil, key, from, *more) end
  def publish(channel, message) __run(:PUBLISH, 'ss', nil, channel, message) end
  def multi() __run(:MULTI, '', nil) end
  def exec() __errors(__run(:EXEC, '', nil)) end
  def discard() __run(:DISCARD, '', nil) end
  def watch(key, *more) __run(:WATCH, 's*', nil, key, *more) end
  def unwatch() __run(:UNWATCH, '', nil) end
  def cluster(command, *words) __run(:CLUSTER, 's*', nil, command, *words) end
  def asking() __run(:ASKING, '', nil) end
  def queue(command, *words) __queue(command, *words) end
  def reply() __errors([__reply(false)])[0] end
  def bulk_reply() __errors(__reply(true)) end
  def __errors(replies)
    return replies unless replies
    replies.map { |reply| reply.is_a?(Hash) ? ReplyError.new(reply[:error]) : reply }
  end
end
