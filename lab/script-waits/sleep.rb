# Answers in a minute.
sleep 60
Nginx.rputs "slept"
