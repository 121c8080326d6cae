<?php
$config['db_dsnw'] = 'sqlite:///@home@/mail/roundcube.db?mode=0640';
$config['des_key'] = 'thick-walls-thick-walls!';
$config['skin'] = 'elastic';
$config['temp_dir'] = '/tmp';
$config['log_driver'] = 'stdout';
