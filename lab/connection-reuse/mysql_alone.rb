# As mysql_kept.rb. With parentheses a statement is not known to only read, and shares no connection.

database = Userdata.new("stores_#{Process.pid}").mysql_connection
host = Nginx::Var.new.http_host

rows = database.execute("SELECT host FROM domain WHERE (domain = ?) LIMIT 1", host)
row = rows.next
rows.close
Nginx.return Nginx::HTTP_SERVICE_UNAVAILABLE if row.nil?
row && row[0]
