# Counts the request out: one less for its file.

counts = Userdata.new.in_flight_counts
file = get_server_class::Request.new.filename

counts[file] = (counts[file].to_i - 1).to_s
