# A rack application that answers requests inside the gateway.
#
# `run` takes anything with `call(env)`, which answers [status, headers, body]. It may wait (for a
# store, another server, `sleep`) and holds up nobody meanwhile.
#
# Use it for what is small enough not to need a server of its own: a health page, a hook that
# others call, a form. Applications that need gems belong behind `proxy`.
#
#   [[sites.rules]]
#   match = { path = "/app/*" }
#   handler = { script = "hooks/rack_app.rb" }

text = { "Content-Type" => "text/plain; charset=utf-8" }

app = lambda do |env|
  case "#{env['REQUEST_METHOD']} #{env['PATH_INFO']}"
  when "GET /app/"
    visits = Cache.new(namespace: "rack_app").incr("visits")
    [200, text, ["Hello, #{env['REMOTE_ADDR']}. ", "This page was asked for #{visits} times.\n"]]
  when "POST /app/shout"
    [200, text, [env["rack.input"].read.to_s.upcase]]
  else
    [404, text, ["There is no #{env['PATH_INFO']}.\n"]]
  end
end

# A middleware is an application around another.
measured = lambda do |env|
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  status, headers, body = app.call(env)
  seconds = Process.clock_gettime(Process::CLOCK_MONOTONIC) - began
  [status, headers.merge("X-Runtime" => format("%.6f", seconds)), body]
end

run measured
