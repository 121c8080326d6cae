# Classes of checksums, and numbers out of random bytes.
module Digest
  class Base
    def self.digest(string) Nagaya.__digest(self::KIND, string) end
    def self.hexdigest(string) Nagaya.__digest(self::KIND, string).unpack("H*")[0] end
    def self.base64digest(string) Base64.strict_encode64(digest(string)) end
    def initialize; @data = "" end
    def update(string) @data << string; self end
    alias << update
    def reset; @data = ""; self end
    def digest(string = nil) self.class.digest(string || @data) end
    def hexdigest(string = nil) self.class.hexdigest(string || @data) end
    def base64digest(string = nil) self.class.base64digest(string || @data) end
    alias to_s hexdigest
    def digest_length; self.class.digest("").bytesize end
    alias length digest_length
    alias size digest_length
    def block_length; self.class::BLOCK end
    def ==(other) hexdigest == (other.is_a?(String) ? other : other.hexdigest) end
  end
  class MD5 < Base; KIND = "md5"; BLOCK = 64 end
  class SHA1 < Base; KIND = "sha1"; BLOCK = 64 end
  class SHA256 < Base; KIND = "sha256"; BLOCK = 64 end
  class SHA384 < Base; KIND = "sha384"; BLOCK = 128 end
  class SHA512 < Base; KIND = "sha512"; BLOCK = 128 end
  class HMAC
    def self.digest(string, key, digest) Nagaya.__digest(digest::KIND, string, key) end
    def self.hexdigest(string, key, digest) self.digest(string, key, digest).unpack("H*")[0] end
    def initialize(key, digest) @key = key; @digest = digest; @data = "" end
    def update(string) @data << string; self end
    alias << update
    def digest; HMAC.digest(@data, @key, @digest) end
    def hexdigest; HMAC.hexdigest(@data, @key, @digest) end
    alias to_s hexdigest
  end
end
module SecureRandom
  def self.base64(count = 16) Base64.strict_encode64(random_bytes(count)) end
  def self.urlsafe_base64(count = 16) Base64.urlsafe_encode64(random_bytes(count)).delete("=") end
  def self.random_number(limit)
    raise ArgumentError, "SecureRandom.random_number takes an Integer from 1" unless limit.is_a?(Integer) && limit > 0
    raise ArgumentError, "SecureRandom.random_number takes an Integer below 2 ** 56" if limit >= 0x100_0000_0000_0000
    largest = 0x100_0000_0000_0000 / limit * limit
    while true
      number = hex(7).to_i(16)
      return number % limit if number < largest
    end
  end
end
class Random
  alias __seeded initialize
  def initialize(seed = Nagaya.__seed) __seeded(seed) end
end
srand(Nagaya.__seed)
