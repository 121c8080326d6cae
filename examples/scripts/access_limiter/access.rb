# Third hook of the access limiter, in `access`: counts the request, and refuses it when there are
# more than `threshold` of its file.

threshold = 2

server = get_server_class
request = server::Request.new

unless request.sub_request?
  file = request.filename.to_s
  limiter = AccessLimiter.new(file)
  broken = limiter.alone do
    count = limiter.enter
    # So that the fourth hook knows it was counted: it also runs for requests that never came here.
    request.notes["access_limiter"] = "counted"
    server.errlogger server::LOG_NOTICE, "access_limiter: file:#{file} counter:#{count}"
    if count > threshold
      server.errlogger server::LOG_NOTICE, "access_limiter: file:#{file} reached threshold: #{threshold}: return 503"
      server.return server::HTTP_SERVICE_UNAVAILABLE
    end
  end
  server.errlogger server::LOG_WARN, "access_limiter: the lock was broken, file:#{file}" if broken
end
