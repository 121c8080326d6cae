-- Forwards to the back end that was found for the request.
local host, port = ngx.ctx.back_end:match("^(.+):(%d+)$")
require("ngx.balancer").set_current_peer(host, tonumber(port))
