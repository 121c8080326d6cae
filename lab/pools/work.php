<?php
// Takes 10 ms of a processor, however long that lasts.
function used() {
  $it = getrusage();
  return ($it['ru_utime.tv_sec'] + $it['ru_stime.tv_sec']) * 1000000 + $it['ru_utime.tv_usec'] + $it['ru_stime.tv_usec'];
}
$until = used() + 10000;
while (used() < $until) ;
echo 'worked';
