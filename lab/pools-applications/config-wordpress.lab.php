<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'thick-walls');
define('DB_HOST', 'localhost:@backend.mariadb.home@/mariadb.sock');
define('WP_CONTENT_DIR', '/var/lib/wordpress/wp-content');
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISABLE_WP_CRON', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
