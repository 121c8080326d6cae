# Opens the connection that this worker's requests share.
database = MySQL::Database.new("127.0.0.1", "router", "thick-walls", "domains", @backend.mariadb.port@)
Userdata.new("stores_#{Process.pid}").mysql_connection = database
