# What of Nagaya takes keywords.
module Nagaya
  module Limit
    def self.acquire(key, concurrent:, queue: 0, wait: 1.0)
      __acquire(key, concurrent, queue, wait)
    end
  end
end
