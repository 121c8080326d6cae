# Names the back end of the request's host, asking MySQL over a connection of the request's own.

database = MySQL::Database.new("127.0.0.1", "router", "thick-walls", "domains", @backend.mariadb.port@)
host = Nginx::Var.new.http_host

rows = database.execute("SELECT host FROM domain WHERE domain = ? LIMIT 1", host)
row = rows.next
rows.close
database.close
Nginx.return Nginx::HTTP_SERVICE_UNAVAILABLE if row.nil?
row && row[0]
