-- Asks memcached for the back end of the request's host, and leaves it to the balancer.
local function refuse(problem)
  ngx.log(ngx.CRIT, "route: ", problem)
  return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
end

local socket = ngx.socket.tcp()
socket:settimeouts(1000, 5000, 5000)
local connected, problem = socket:connect("127.0.0.1", @backend.memcached.port@)
if not connected then
  return refuse(problem)
end

socket:send("get " .. ngx.var.http_host .. "\r\n")
local head = socket:receive()
local length = head and head:match("^VALUE %S+ %d+ (%d+)$")
if not length then
  return refuse("memcached knows no " .. ngx.var.http_host)
end
local back_end = socket:receive(tonumber(length))
-- What is left of the value's line, and END.
socket:receive()
socket:receive()
@if kept@
socket:setkeepalive(60000, 128)
@end@
@if not kept@
socket:close()
@end@
ngx.ctx.back_end = back_end
