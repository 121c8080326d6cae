# Opens what the scripts beside it share: a count for each file that all workers see, and a mutex
# for those that take one. Run in every worker's VM when it opens.

class InFlight
  # Seconds after which a count that never came down to nothing is taken for a leftover.
  LEFTOVER = 600

  def initialize(counts, file)
    @counts = counts
    @file = file
    @since = "#{file} since"
  end

  def count
    @counts[@file].to_i
  end

  def enter
    now = count + 1
    @counts[@since] = Time.now.to_i.to_s if now == 1
    @counts[@file] = now.to_s
    now
  end

  def leave
    now = count - 1
    now = 0 if now < 0
    @counts[@file] = now.to_s
    now
  end

  def drop_leftover
    since = @counts[@since].to_i
    return false unless count > 0 && since + LEFTOVER < Time.now.to_i
    @counts[@file] = "0"
    true
  end
end

counts = Cache.new(:namespace => "in flight")
counts.clear

shared = Userdata.new
shared.in_flight_counts = counts
shared.in_flight_mutex = Mutex.new(:global => true)
