# Lets only those have a file whom an application gave a link to it, and only for a while.
#
# A link is /downloads/report.txt?expires=4102444800&signature=…, the signature being the
# HMAC-SHA256 (RFC 2104), in hexadecimal, of the time it expires at (in seconds since 1970), a
# space, and the decoded path. Whoever has the key makes links; in a shell:
#
#   printf '4102444800 /downloads/report.txt' | openssl dgst -sha256 -hmac "$SIGNING_KEY"
#
# Another signature is answered 403, a link that has expired 410.
#
# Use it for invoices, films, exports: the application decides who may, the gateway sends the file.
# The key comes from the environment, so that it stands in no file of the configuration's:
#
#   [scripts]
#   env = ["SIGNING_KEY"]
#   …
#   [[sites.rules]]
#   match = { path = "/downloads/*" }
#   scripts = { access = "hooks/signed_url.rb" }

key = ENV["SIGNING_KEY"].to_s
raise "SIGNING_KEY has to be set, to 16 characters or more" if key.size < 16

request = Nginx::Request.new
link = Nginx::Var.new
expires = link.arg_expires.to_s
signature = link.arg_signature.to_s.downcase
expected = Digest::HMAC.hexdigest("#{expires} #{request.uri}", key, Digest::SHA256)

# Both are hashed again before they are compared, so that the time the comparison takes says
# nothing of how much was right.
same = Digest::HMAC.digest(signature, key, Digest::SHA256) == Digest::HMAC.digest(expected, key, Digest::SHA256)

if !same
  Nginx.return Nginx::HTTP_FORBIDDEN
elsif expires.to_i < Time.now.to_i
  Nginx.return 410
end
