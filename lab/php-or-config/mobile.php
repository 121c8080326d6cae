<?php
/** Whether a browser is a telephone's, by the same words that the servers' configurations have. */
function is_mobile(string $browser): bool
{
    $words = ['DoCoMo', 'KDDI-', 'UP.Browser', 'SoftBank', 'Vodafone', 'J-PHONE', 'WILLCOM', 'iPhone', 'iPod',
        'Android', 'BlackBerry', 'Windows Phone'];
    foreach ($words as $word) {
        if (strpos($browser, $word) !== false) {
            return true;
        }
    }
    return false;
}
