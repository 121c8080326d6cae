# Second hook of the access limiter, in `worker_init`: where the counts are.
#
# They are the same for all workers and stay over a reload, so they are not cleared here: requests
# that are under way would be forgotten. When the server stops they are gone.

Userdata.new.access_limiter_counts = Cache.new(:namespace => "access_limiter")
