# What of JWT takes a block, and signing by a secret.
module JWT
  def self.decode(token, key = nil, verify = true, options = {})
    Nagaya.__refuse("JWT.decode without verifying", "give the key; a block is shown header and payload to choose one") unless verify
    key = yield(*__open(token)) if block_given?
    __decode(token, key, options)
  end
  def self.encode(payload, secret, algorithm = "HS256", header = {})
    digest = { "HS256" => "sha256", "HS384" => "sha384", "HS512" => "sha512" }[algorithm]
    raise EncodeError, "JWT.encode signs by HS256, HS384 and HS512" unless digest
    raise EncodeError, "the secret is a String that is not empty" unless secret.is_a?(String) && !secret.empty?
    parts = [{ "alg" => algorithm }.merge(header).merge("alg" => algorithm), payload]
    signed = parts.map { |part| __text(JSON.generate(part)) }.join(".")
    "#{signed}.#{__text(Nagaya.__digest(digest, signed, secret))}"
  end
  def self.__text(bytes) Base64.urlsafe_encode64(bytes).delete("=") end
end
