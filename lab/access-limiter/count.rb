# Counts the request in: one more for its file. Refuses what is far above anything the load asks for.

server = get_server_class
counts = Userdata.new.in_flight_counts
file = server::Request.new.filename

count = counts[file].to_i + 1
counts[file] = count.to_s
server.return server::HTTP_SERVICE_UNAVAILABLE if count > 1_000_000
