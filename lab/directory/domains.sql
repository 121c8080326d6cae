create user router@'127.0.0.1' identified by 'thick-walls';
grant select on domains.* to router@'127.0.0.1';
create database domains;
create table domains.domain (domain varchar(190) primary key, tenant varchar(64), upstream varchar(190)) engine = InnoDB;
insert into domains.domain select concat('n', lpad(seq, 8, '0'), '.example'), concat('t', seq), '@back_end@' from mysql.seq_0_to_999999;
create table domains.changes (id bigint auto_increment primary key, host varchar(190)) engine = InnoDB;
