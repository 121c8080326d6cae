//! What the directory process is told of databases and of the store that machines share, with passwords and authorities
//! as they are in their files now.
//!
//! The idea: the supervisor reads these files, which nobody else has to. What a directory is beside that is its parent's.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use config::model::{DatabaseServer, DirectorySource, Fleet, Model, RowFormat, ServerAddress};
use config::reason;
use ipc::archive::ArchiveSettings;
use ipc::directory::{ServerSettings, SourceSettings};
use ipc::fleet::FleetSettings;

use super::row_key;

/// Bytes of a password's file, and of one of authorities.
const PASSWORD_BYTES_MAX: usize = 4 * 1024;
const AUTHORITIES_BYTES_MAX: usize = 2 << 20;

pub(super) fn source(source: &DirectorySource) -> Result<SourceSettings, String> {
    Ok(match source {
        DirectorySource::Mysql(it) => SourceSettings::Mysql(server(it)?),
        DirectorySource::Postgres(it) => SourceSettings::Postgres(server(it)?),
        DirectorySource::Sqlite(path) => SourceSettings::Sqlite(path.clone()),
        DirectorySource::File(path, RowFormat::Csv) => SourceSettings::Csv(path.clone()),
        DirectorySource::File(path, RowFormat::JsonLines) => {
            SourceSettings::JsonLines(path.clone())
        }
    })
}

fn server(server: &DatabaseServer) -> Result<ServerSettings, String> {
    let (host, port) = place(&server.address);
    let password = server.password_file.as_deref().map(password).transpose()?;
    let tls = authorities(server.tls, server.authorities.as_deref())?;
    Ok(ServerSettings {
        host,
        port,
        user: server.user.clone(),
        password,
        database: server.database.clone(),
        tls,
    })
}

/// PEM of the authorities that a server's certificate may come from, where it is spoken to by TLS: of this file, or the machine's.
fn authorities(tls: bool, file: Option<&Path>) -> Result<Option<Vec<u8>>, String> {
    if !tls {
        return Ok(None);
    }
    let mut usual = config::AUTHORITIES.into_iter().map(Path::new);
    let file = file.or_else(|| usual.find(|it| it.exists()));
    let file = file.ok_or("this machine has no file of authorities: name one with `ca`")?;
    read(file, AUTHORITIES_BYTES_MAX).map(Some)
}

/// A host and its port, or the path of a socket.
fn place(address: &ServerAddress) -> (String, Option<u16>) {
    match address {
        ServerAddress::Tcp(address) => (address.ip().to_string(), Some(address.port())),
        ServerAddress::Name { host, port } => (host.clone(), Some(*port)),
        ServerAddress::Unix(path) => (path.display().to_string(), None),
    }
}

/// The store that machines share, with its password as it is in its file now.
///
/// # Errors
/// Which file cannot be read, and why.
pub fn fleet_settings(fleet: &Fleet) -> Result<FleetSettings, String> {
    let store = &fleet.store;
    Ok(FleetSettings {
        places: store.addresses.iter().map(place).collect(),
        sentinel: store.sentinel.clone(),
        tls: authorities(store.tls, store.authorities.as_deref())?,
        user: store.user.clone(),
        password: store.password_file.as_deref().map(password).transpose()?,
        database: store.database,
        machine: machine(Some(fleet))?,
        lease_ms: fleet.lease_ms,
        // The same over upgrades, and no other gateway's.
        gateway: u64::try_from(row_key()?.seal("", "fleet", &[]) >> 64).unwrap_or(0),
    })
}

/// The database that the recorder sends to, with its password as it is in its file now.
///
/// # Errors
/// Which file cannot be read, and why.
pub(super) fn archive_settings(
    send: &DatabaseServer,
    fleet: Option<&Fleet>,
) -> Result<ArchiveSettings, String> {
    Ok(ArchiveSettings {
        server: server(send)?,
        machine: machine(fleet)?,
    })
}

/// What keeps a configuration's databases and the fleet's store from being asked, as their files are now.
pub(crate) fn unaskable(model: &Model) -> impl Iterator<Item = String> {
    let of_directories = model.directories.iter().filter_map(|it| {
        let why = source(&it.source).err()?;
        Some(format!(
            "directory {}: it will not be asked: {why}",
            it.name
        ))
    });
    let of_fleet = model.fleet.as_ref().and_then(|it| fleet_settings(it).err());
    let of_fleet = of_fleet.map(|why| format!("the fleet's store will not be asked: {why}"));
    let send = model.recorder.as_ref().and_then(|it| it.send.as_ref());
    let unsent = send.and_then(|it| archive_settings(it, model.fleet.as_ref()).err());
    let unsent = unsent.map(|why| format!("the recorder's figures will not be sent: {why}"));
    of_directories.chain(of_fleet).chain(unsent)
}

/// What this machine is called.
fn machine(fleet: Option<&Fleet>) -> Result<String, String> {
    match fleet.and_then(|it| it.machine.as_ref()) {
        Some(machine) => Ok(machine.clone()),
        None => host_name(),
    }
}

/// What the kernel calls this machine.
fn host_name() -> Result<String, String> {
    let name = os::kernel::name().node;
    match Fleet::is_machine_name(&name) {
        true => Ok(name),
        false => Err(format!(
            "the host name `{}` cannot be a machine's name: say `machine` in `[fleet]`",
            name.escape_debug()
        )),
    }
}

/// The first line of a file.
fn password(file: &Path) -> Result<String, String> {
    let bytes = read(file, PASSWORD_BYTES_MAX)?;
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| format!("`{}` is not UTF-8", file.display()))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// What a file holds; why it cannot be read, in a sentence.
fn read(file: &Path, bytes_max: usize) -> Result<Vec<u8>, String> {
    let read = File::open(file).and_then(|file| os::file::read_whole(file.as_fd(), bytes_max));
    read.map_err(|error| format!("cannot read `{}`: {}", file.display(), reason(&error)))
}
