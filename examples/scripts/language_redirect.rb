# Sends who asks for / to the pages in their language.
#
# A language that was chosen before (the cookie `language`) counts most, then what the browser asks
# for (Accept-Language, RFC 9110, 12.5.4), then the first of the list.
#
# Use it for a site whose languages lie in directories of their own: /ja/, /en/. It stands on the
# site, since rules are chosen after `rewrite`.
#
#   [[sites]]
#   hosts = ["example.jp"]
#   root = "/srv/example/htdocs"
#   scripts = { rewrite = "hooks/language_redirect.rb" }

languages = ["ja", "en"]

request = Nginx::Request.new

if request.uri == "/" && ["GET", "HEAD"].include?(request.method)
  visitor = Nginx::Var.new

  # "en-GB;q=0.8" is ["en", 0.8].
  wishes = visitor.http_accept_language.to_s.split(",").map do |wish|
    tag, quality = wish.split(";")
    quality = quality ? quality.strip.sub("q=", "").to_f : 1.0
    [tag.to_s.strip.downcase.split("-")[0], quality]
  end
  wishes = wishes.select { |language, quality| languages.include?(language) && quality > 0 }
  best = wishes.max_by { |_, quality| quality }

  chosen = visitor.cookie_language
  chosen = best ? best[0] : languages[0] unless languages.include?(chosen)

  query = request.args.to_s
  request.headers_out["Location"] = query.empty? ? "/#{chosen}/" : "/#{chosen}/?#{query}"
  request.headers_out["Vary"] = "Accept-Language, Cookie"
  Nginx.return Nginx::HTTP_MOVED_TEMPORARILY
end
