create database wordpress;
create user wordpress@localhost identified by 'thick-walls';
grant all on wordpress.* to wordpress@localhost;
