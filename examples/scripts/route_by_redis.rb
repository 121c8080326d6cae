# Forwards each host to where Redis says it lives.
#
# The key route:HOST holds the name of an upstream, or an address with its port. A host that has
# none is answered 503. While Redis cannot be asked, what it said last is used, by all workers.
#
#   redis-cli set route:shop.example.jp 10.0.0.7:8000
#
# Use it where containers come and go, and where each customer has a server of their own. Which
# addresses may be named at all is said in the configuration, not in Redis:
#
#   [scripts]
#   env = ["ROUTES_REDIS"]          # HOST:PORT; 127.0.0.1:6379 without it
#   …
#   [[sites]]
#   hosts = ["*.example.jp"]
#     [[sites.rules]]
#     handler = { proxy = { script = "hooks/route_by_redis.rb", allow = ["10.0.0.0/8"] } }

host = Nginx::Request.new.hostname
kept = Userdata.new("route_by_redis")
last = Cache.new(namespace: "route_by_redis")

begin
  unless kept.redis
    server, port = (ENV["ROUTES_REDIS"] || "127.0.0.1:6379").split(":")
    kept.redis = Redis.new(server, port.to_i)
  end
  route = kept.redis.get("route:#{host}")
  route ? last[host] = route : last.delete(host)
rescue Redis::ConnectionError => error
  Nginx.errlogger Nginx::LOG_WARN, "route_by_redis: the last route of #{host} is used: #{error.message}"
  route = last[host]
end

Nginx.errlogger Nginx::LOG_WARN, "route_by_redis: no route:#{host}" unless route
route
