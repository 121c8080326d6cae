# Names the back end of the request's host, asking memcached over the worker's connection.

memcached = Userdata.new("stores_#{Process.pid}").memcached_connection
host = Nginx::Var.new.http_host

back_end = memcached.get host
Nginx.return Nginx::HTTP_SERVICE_UNAVAILABLE if back_end.nil?
back_end
