# The access limiter: how many requests run the same file at once. Four hooks, for gateways that
# keep the scripts they had under mod_mruby or ngx_mruby: they call what http-access-limiter calls
# (Mutex, Cache, Userdata, try_lock_loop) and run under either name, as `scripts.server` says.
#
# Use it to keep one slow page from taking every PHP process. For the same without scripts, with a
# queue besides, write limits = [{ key = "file", concurrent = 2 }].
#
#   [scripts]
#   init = "hooks/init.rb"
#   worker_init = "hooks/worker_init.rb"
#   …
#   [[sites.rules]]
#   match = { file = "*.php" }
#   handler = { fastcgi = "unix:/run/php/php-fpm.sock" }
#   scripts = { access = "hooks/access.rb", log = "hooks/log.rb" }
#
# This one (`init`) runs in every worker's interpreter when it opens.

class AccessLimiter
  def initialize(file)
    shared = Userdata.new
    @file = file
    @mutex = shared.access_limiter_mutex
    @counts = shared.access_limiter_counts
  end

  # Counts a request that begins; answers how many there are.
  def enter
    put count + 1
  end

  # Counts a request that has ended; answers how many are left.
  def leave
    put count - 1
  end

  # Calls the block while no other request counts. Answers whether the lock had to be broken,
  # which is done when it was not to be had for five seconds.
  def alone
    @mutex.try_lock_loop(50_000) do
      begin
        yield
      ensure
        @mutex.unlock
      end
    end
  end

  private

  def count
    @counts[@file].to_i
  end

  def put(count)
    count < 1 ? @counts.delete(@file) : @counts[@file] = count.to_s
    count
  end
end

# One lock for all workers.
Userdata.new.access_limiter_mutex = Mutex.new(:global => true)
