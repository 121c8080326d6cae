# Waits in MySQL for a second, over a connection that is kept.
database = Userdata.new("stores_#{Process.pid}").mysql_connection
rows = database.execute("SELECT SLEEP(1)")
rows.close
Nginx.rputs "slept"
