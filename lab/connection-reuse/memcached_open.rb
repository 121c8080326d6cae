# Opens the connection that this worker's requests share.
Userdata.new("stores_#{Process.pid}").memcached_connection = Memcached.new("@backend.memcached@")
