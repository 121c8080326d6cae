//! What the spawner is told of pools.

use config::model::{AppPool, Isolate, Model, PhpPool, Pool, PoolProgram, Site};
use config::reason;
use ipc::codec::Packed;
use ipc::groups::Shape;
use ipc::pools::{PoolManifest, PoolProgramManifest, PoolSite, Seen, WallsManifest};

use super::walls;
use crate::surroundings;

/// Every pool of a model, by its index there; the problems are what this process cannot do for
/// one, and then some are missing.
pub(crate) fn of(
    model: &Model,
    shape: &Shape<'_>,
    problems: &mut Vec<String>,
) -> Vec<Packed<PoolManifest>> {
    let mut made = Vec::with_capacity(model.pools.len());
    for (at, pool) in model.pools.iter().enumerate() {
        let group = shape.pools.get(at).and_then(|at| u32::try_from(*at).ok());
        let manifest = of_pool(model, pool, group).and_then(|manifest| {
            let packed = Packed::of(&manifest);
            packed.map_err(|error| format!("pool {}: {}", pool.name, reason(&error)))
        });
        match manifest {
            Ok(manifest) => made.push(manifest),
            Err(problem) => problems.push(problem),
        }
    }
    made
}

fn of_pool(model: &Model, pool: &Pool, group: Option<u32>) -> Result<PoolManifest, String> {
    let program = match &pool.program {
        PoolProgram::Php(php) => php_program(model, pool, php)
            .ok_or_else(|| format!("pool {}: no PHP is known for it", pool.name))?,
        PoolProgram::App(app) => app_program(app),
    };
    let tenant = pool.tenant_index.and_then(|at| model.tenants.get(at));
    let terms = &model.pool_terms;
    Ok(PoolManifest {
        id: pool.id.clone(),
        name: pool.name.clone(),
        tenant: pool.tenant.clone(),
        weight: tenant.map_or(1, |tenant| tenant.weight),
        user: surroundings::user_of_pool(pool)?,
        users: None,
        group,
        directory: terms.directory.join(&pool.id),
        socket: pool.socket.clone(),
        program,
        walls: walls_of(model, pool)?,
        idle_ms: (!pool.is_kept).then_some(terms.idle_ms),
    })
}

/// What every pool with walls sees; nothing where none has walls.
pub(crate) fn sees(model: &Model) -> Vec<Seen> {
    let has_walls = |pool: &Pool| pool.isolate == Isolate::Home;
    let of_rows = |site: &Site| site.has_pools_of_rows() && site.pool.isolate == Isolate::Home;
    match model.pools.iter().any(has_walls) || model.sites.iter().any(of_rows) {
        true => walls::common(model),
        false => Vec::new(),
    }
}

/// The walls of a pool; none where nobody can build them, since nobody is root: that is said as a
/// warning.
fn walls_of(model: &Model, pool: &Pool) -> Result<Option<WallsManifest>, String> {
    if pool.isolate == Isolate::None || !os::process::is_root() {
        return Ok(None);
    }
    match surroundings::no_walls() {
        None => Ok(Some(walls::of(model, pool))),
        Some(why) => Err(format!("pool {}: {why}", pool.name)),
    }
}

fn php_program(model: &Model, pool: &Pool, its: &PhpPool) -> Option<PoolProgramManifest> {
    let php = model.php.get(its.php)?;
    let sites = walls::roots(model, pool).map(|(site, root)| PoolSite {
        name: site.name(),
        root: root.path.clone(),
    });
    Some(PoolProgramManifest::Php {
        program: php.program.clone(),
        processes: its.processes,
        requests: its.requests,
        time_ms: its.time_ms,
        ini: php.ini.clone(),
        admin: its.admin.clone(),
        sites: sites.collect(),
    })
}

fn app_program(pool: &AppPool) -> PoolProgramManifest {
    PoolProgramManifest::App {
        command: pool.command.clone(),
        directory: pool.directory.clone(),
        env: pool.env.clone(),
        instances: pool.instances,
        start_ms: pool.start_ms,
        stop_ms: pool.stop_ms,
        ready: pool.ready.clone(),
    }
}
