# Closes a site for maintenance, without a reload.
#
# While a file maintenance.html lies in the site's root, everybody is answered 503 with that page
# and told when to come back. The operators get the site as it is, to see whether it works again:
#
#   mv maintenance.off maintenance.html      # closed
#   mv maintenance.html maintenance.off      # open
#
# Use it for moves and upgrades during which visitors should neither see half a site nor be taken
# for errors by a search engine. The file is looked for off the worker, at every request.
#
#   [[sites]]
#   hosts = ["example.jp"]
#   root = "/srv/example/htdocs"
#   scripts = { access = "hooks/maintenance.rb" }

operators = ["192.0.2.7", "2001:db8::7"]
back_in = 600 # seconds

request = Nginx::Request.new
page = "#{request.document_root}/maintenance.html"

if !operators.include?(Nginx::Connection.new.remote_ip) && File.exist?(page)
  request.content_type = "text/html; charset=utf-8"
  request.headers_out["Retry-After"] = back_in.to_s
  request.headers_out["Cache-Control"] = "no-store"
  Nginx.rputs File.read(page)
  Nginx.return Nginx::HTTP_SERVICE_UNAVAILABLE
end
