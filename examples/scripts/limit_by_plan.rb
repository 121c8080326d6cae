# Lets each customer have as many requests at once as their plan says.
#
# Customers send a key in X-Api-Key; plans.json, which lies beside this script, says whose plan is
# which, and how many requests of it may run and wait. One that finds no place is answered 429.
#
# Use it before an API that is sold. Where everybody has the same limit, `limits` in the
# configuration does it without a script: { key = "header:X-Api-Key", concurrent = 4 }.
#
#   [[sites.rules]]
#   match = { path = "/api/*" }
#   handler = { proxy = "app" }
#   scripts = { access = "hooks/limit_by_plan.rb" }

request = Nginx::Request.new
kept = Userdata.new("limit_by_plan")

# Each worker reads the file again after ten seconds, so that a new customer needs no reload.
if kept.customers.nil? || Time.now - kept.read_at > 10
  kept.customers = JSON.parse(File.read("#{File.dirname(__FILE__)}/plans.json"))
  kept.read_at = Time.now
end

key = request.headers_in["X-Api-Key"]
plan = kept.customers["plans"][kept.customers["keys"][key]]

if plan.nil?
  Nginx.return Nginx::HTTP_FORBIDDEN
else
  # The place is free again when the request has ended, however it ends.
  has_place = Nagaya::Limit.acquire("plan:#{key}", concurrent: plan["concurrent"], queue: plan["queue"], wait: 2.0)
  unless has_place
    request.headers_out["Retry-After"] = "1"
    Nginx.return Nginx::HTTP_TOO_MANY_REQUESTS
  end
end
