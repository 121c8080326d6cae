# Counts the request in as the limiters of 2016 did: under a mutex, with an expiry, with lines for
# the log. Refuses what is far above anything the load asks for.

server = get_server_class
request = server::Request.new

unless request.sub_request?
  file = request.filename
  shared = Userdata.new
  mutex = shared.in_flight_mutex
  limiter = InFlight.new(shared.in_flight_counts, file)
  threshold = 1_000_000

  late = mutex.try_lock_loop(50_000) do
    begin
      if limiter.drop_leftover
        server.errlogger server::LOG_INFO, "limiter: a leftover of #{file} was dropped"
      end
      count = limiter.enter
      server.errlogger server::LOG_INFO, "limiter: #{file} has #{count} in flight"
      if count > threshold
        server.errlogger server::LOG_INFO, "limiter: #{file} is above #{threshold}"
        server.return server::HTTP_SERVICE_UNAVAILABLE
      end
    rescue => error
      raise "the limiter failed: #{error}"
    ensure
      mutex.unlock
    end
  end
  server.errlogger server::LOG_INFO, "limiter: took the mutex from its holder, for #{file}" if late
end
