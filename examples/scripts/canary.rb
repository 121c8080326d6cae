# Sends some visitors to a new release, and testers by a cookie.
#
# The cookie canary=on asks for the new release, canary=off for the old one. Of those who have no
# such cookie, a share is sent to the new one: always the same visitors, since the share is drawn
# from the address of each, and no cookie has to be set.
#
# Use it to try a release on 5 of 100 visitors. A change of `percent` is seen within a second.
#
#   [upstreams.stable]
#   servers = ["10.0.0.1:8000", "10.0.0.2:8000"]
#   [upstreams.canary]
#   servers = ["10.0.0.3:8000"]
#   …
#   handler = { proxy = { script = "hooks/canary.rb" } }
#
# The value of the last line names the upstream.

percent = 5

visitor = Nginx::Var.new

case visitor.cookie_canary
when "on" then "canary"
when "off" then "stable"
else
  drawn = Digest::MD5.digest(visitor.remote_addr).unpack("n")[0] % 100
  drawn < percent ? "canary" : "stable"
end
