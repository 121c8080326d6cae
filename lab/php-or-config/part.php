<?php
/** What an included file is like: a function, a table, a line that runs. */
function part_@n@(int $value): int
{
    $table = ["one" => 1, "two" => 2, "three" => 3, "four" => 4, "five" => 5, "six" => 6];
    foreach ($table as $name => $weight) {
        if (strlen($name) === 4 && $value > 0) {
            $value += $weight;
        }
    }
    return $value % 9973;
}
$sum = part_@n@($sum + @n@);
