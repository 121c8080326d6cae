<?php
// About 60 KB of a page as a blog has it: the same markup around ever other words.
$words = explode(' ', 'thick walls keep the site and its heat while summer goes round every house of clay under old roofs where swallows nest between beams that carpenters joined without nails long before anybody wrote such things down for others who build in towns with wind from the sea');
mt_srand(7);
$text = function (int $count) use ($words): string {
    $said = '';
    while ($count-- > 0) $said .= $words[mt_rand(0, count($words) - 1)] . (mt_rand(0, 9) ? ' ' : ', ');
    return $said;
};
echo "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Walls</title></head>\n<body class=\"home blog wp-embed-responsive\">\n";
for ($post = 1; $post <= 60; $post++) {
    $id = mt_rand(1000, 9999);
    echo "<article id=\"post-$id\" class=\"post-$id post type-post status-publish format-standard hentry category-uncategorized\">\n",
        "<h2 class=\"entry-title\"><a href=\"/archives/$id\" rel=\"bookmark\">", $text(6), "</a></h2>\n",
        '<p>', $text(70), "</p>\n<p>", $text(50), "</p>\n</article>\n";
}
echo "</body></html>\n";
