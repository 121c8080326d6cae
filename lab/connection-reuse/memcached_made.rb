# Names the back end of the request's host, asking memcached over a connection of the request's own.

memcached = Memcached.new "@backend.memcached@"
host = Nginx::Var.new.http_host

back_end = memcached.get host
memcached.close
Nginx.return Nginx::HTTP_SERVICE_UNAVAILABLE if back_end.nil?
back_end
