# Counts by file in the worker's own VM, up only: h2o runs no script when a request has ended.
# 399 hands the request on to the next handler of the path.
counts = Hash.new(0)
lambda do |env|
  file = env["PATH_INFO"]
  counts[file] += 1
  counts[file] > 1_000_000_000 ? [503, {}, []] : [399, {}, []]
end
