-- One less is in flight. A log phase may not wait for a store: a timer does.
if ngx.ctx.is_counted then
  ngx.timer.at(0, function()
    local socket = ngx.socket.tcp()
    socket:settimeouts(1000, 1000, 1000)
    if socket:connect("127.0.0.1", @backend.store.port@) then
      socket:send("DECR in-flight\r\n")
      socket:receive()
      socket:setkeepalive(60000, 256)
    end
  end)
end
