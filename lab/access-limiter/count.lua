-- Counts the request in: one more for its file, in the dictionary all workers share.
local count = ngx.shared.in_flight:incr(ngx.var.request_filename, 1, 0)
if count > 1000000 then
  return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
end
