# Turns requests for a host away for a while when there are far too many of them.
#
# Requests are counted by the host they ask for, in windows of some seconds, over all workers. When
# one window has more than `threshold`, the host's requests are answered 503 for `ban` seconds;
# other hosts notice nothing.
#
# Use it where one machine serves many small sites, and one of them is flooded. Limits in the
# configuration (`limits`, with `key` and `rate`) count by client, file or field, and are cheaper;
# this one is for rules of your own.
#
#   scripts = { access = "hooks/dos_detector.rb" }     # of [[sites]], or of all: [scripts]

threshold = 100 # requests
window = 10     # seconds
ban = 30        # seconds

request = Nginx::Request.new
host = request.hostname
cache = Cache.new(namespace: "dos_detector")
now = Time.now.to_i

banned_until = cache["until #{host}"].to_i
if banned_until <= now
  # `incr` counts in one step, so that no lock is needed.
  count = cache.incr("#{now / window} #{host}")
  cache.delete("#{now / window - 1} #{host}") if count == 1
  if count > threshold
    banned_until = now + ban
    cache["until #{host}"] = banned_until.to_s
    Nginx.errlogger Nginx::LOG_WARN, "dos_detector: #{host} had more than #{threshold} requests in #{window} s, refused for #{ban} s"
  end
end

if banned_until > now
  request.headers_out["Retry-After"] = (banned_until - now).to_s
  Nginx.return Nginx::HTTP_SERVICE_UNAVAILABLE
end
