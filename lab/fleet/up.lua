-- One more is in flight on all machines, or too many are.
local socket = ngx.socket.tcp()
socket:settimeouts(1000, 1000, 1000)
if not socket:connect("127.0.0.1", @backend.store.port@) then
  return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
end
socket:send("INCR in-flight\r\n")
local count = socket:receive()
socket:setkeepalive(60000, 256)
ngx.ctx.is_counted = true
if not count or tonumber(count:sub(2)) > @concurrent@ then
  return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
end
