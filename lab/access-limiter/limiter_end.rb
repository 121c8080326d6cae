# Counts the request out again, under the mutex.

server = get_server_class
request = server::Request.new

unless request.sub_request?
  file = request.filename
  shared = Userdata.new
  mutex = shared.in_flight_mutex
  limiter = InFlight.new(shared.in_flight_counts, file)

  mutex.try_lock_loop(50_000) do
    begin
      count = limiter.leave
      server.errlogger server::LOG_INFO, "limiter: #{file} has #{count} left"
    rescue => error
      raise "the limiter failed: #{error}"
    ensure
      mutex.unlock
    end
  end
end
