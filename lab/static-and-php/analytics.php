<?php
// Access analysis as shared hosts have it: a database beside the pages, opened, written and closed
// at every view. What it keeps: who came (by address and browser), every view, and a count a day.

/** Notes a view and returns how many there were today. */
function count_view(array $settings): int
{
    // Each server has a database of its own: one shared by all would slow whoever comes last.
    $base = getenv('LAB_DATA') ?: sys_get_temp_dir();
    $file = $base . ($settings ? '/gently.db' : '/views.db');
    $database = new PDO("sqlite:$file", null, null, [
        PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
        PDO::ATTR_TIMEOUT => 30,
    ]);
    foreach ($settings as $setting) {
        $database->exec($setting);
    }
    $database->exec('CREATE TABLE IF NOT EXISTS visitors (id INTEGER PRIMARY KEY, address TEXT, browser TEXT, UNIQUE (address, browser))');
    $database->exec('CREATE TABLE IF NOT EXISTS views (id INTEGER PRIMARY KEY, visitor INTEGER, at INTEGER, page TEXT, referer TEXT)');
    $database->exec('CREATE TABLE IF NOT EXISTS days (day TEXT PRIMARY KEY, views INTEGER)');
    if ($settings) {
        // One transaction, and the lock taken at its start: nobody reads first and then has to wait.
        $database->exec('BEGIN IMMEDIATE');
    }
    $views = note($database, $_SERVER);
    if ($settings) {
        $database->exec('COMMIT');
    }
    return $views;
}

function note(PDO $database, array $server): int
{
    $who = [$server['REMOTE_ADDR'] ?? '', $server['HTTP_USER_AGENT'] ?? ''];
    $database->prepare('INSERT OR IGNORE INTO visitors (address, browser) VALUES (?, ?)')->execute($who);
    $find = $database->prepare('SELECT id FROM visitors WHERE address = ? AND browser = ?');
    $find->execute($who);
    $visitor = $find->fetchColumn();
    $find->closeCursor();
    $database->prepare('INSERT INTO views (visitor, at, page, referer) VALUES (?, ?, ?, ?)')
        ->execute([$visitor, time(), $server['REQUEST_URI'] ?? '', $server['HTTP_REFERER'] ?? '']);
    $day = gmdate('Y-m-d');
    $database->prepare('INSERT INTO days VALUES (?, 1) ON CONFLICT (day) DO UPDATE SET views = views + 1')->execute([$day]);
    $count = $database->prepare('SELECT views FROM days WHERE day = ?');
    $count->execute([$day]);
    return (int) $count->fetchColumn();
}
