# As the user that programs run as; only root can become it.
if [ "$(id -u)" -eq 0 ]; then
  exec setpriv --reuid=@user@ --regid=nogroup --clear-groups @program.fcgiwrap@ -c 4 -s unix:@home@/fcgiwrap.sock
fi
exec @program.fcgiwrap@ -c 4 -s unix:@home@/fcgiwrap.sock
