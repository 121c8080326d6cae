<?php
header('Content-Type: text/plain; charset=utf-8');
$sum = 0;
@repeat 1@
include __DIR__ . '/../parts/part-@n@.php';
@end@
echo "$sum\n";
