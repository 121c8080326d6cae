# Closes what the worker's requests shared.
Userdata.new("stores_#{Process.pid}").mysql_connection.close
