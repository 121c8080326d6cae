create user router@'127.0.0.1' identified by 'thick-walls';
grant select on domains.* to router@'127.0.0.1';
create database domains;
create table domains.domain (domain varchar(190) primary key, host varchar(190)) engine = InnoDB;
insert into domains.domain values ('site-a.example', '@back_end@');
