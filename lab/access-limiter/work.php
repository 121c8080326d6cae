<?php
// Takes two milliseconds of CPU time, however fast the processor is.
function spent_us(): int
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000
        + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}

$until = spent_us() + 2000;
$hash = 'nagaya';
do {
    for ($turn = 0; $turn < 100; $turn++) {
        $hash = md5($hash);
    }
} while (spent_us() < $until);
header('Content-Type: text/plain');
echo "worked\n";
