# Puts the fields of an application's replies in order, before they are sent.
#
# What the application runs on is taken away; redirects to its inner name become paths; cookies are
# kept from scripts in pages and from other sites' forms; and replies of failures are never stored.
#
# Use it before applications that cannot be changed. For fields that are always the same,
# `reply_headers` in the configuration does it without a script.
#
#   [[sites.rules]]
#   handler = { proxy = "app" }
#   scripts = { header_filter = "hooks/header_rewrite.rb" }

inner_name = "http://app.internal:8000"
gossip = ["X-Powered-By", "X-Runtime", "X-AspNet-Version", "X-Generator"]

reply = Nginx::Request.new.headers_out

gossip.each { |name| reply.delete(name) }

location = reply["Location"]
if location.is_a?(String) && location.start_with?("#{inner_name}/")
  reply["Location"] = location.delete_prefix(inner_name)
end

# One cookie is a String, several are an Array.
cookies = [reply["Set-Cookie"]].flatten.compact
unless cookies.empty?
  reply["Set-Cookie"] = cookies.map do |cookie|
    has = cookie.downcase.split(";").map { |part| part.strip.split("=")[0] }
    cookie += "; HttpOnly" unless has.include?("httponly")
    cookie += "; SameSite=Lax" unless has.include?("samesite")
    cookie
  end
end

reply["Cache-Control"] = "no-store" if Nginx.var.status.to_i >= 500
