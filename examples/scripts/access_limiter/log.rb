# Fourth hook of the access limiter, in `log`: counts the request out, whatever became of it.

server = get_server_class
request = server::Request.new

if request.notes["access_limiter"]
  file = request.filename.to_s
  limiter = AccessLimiter.new(file)
  broken = limiter.alone do
    server.errlogger server::LOG_NOTICE, "access_limiter_end: file:#{file} counter:#{limiter.leave}"
  end
  server.errlogger server::LOG_WARN, "access_limiter_end: the lock was broken, file:#{file}" if broken
end
