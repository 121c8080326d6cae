//! Classes of tenants' requests: what became of those that could not go on at once.

use control::RequestClass;

use crate::generation::Generation;

/// Classes that are told of: each tenant has few, but there are many tenants.
const CLASSES_MAX: usize = 1_000;

/// Collects those of a generation of which somebody waited or was refused.
pub(super) fn collect(generation: &Generation, first: &[String]) -> Vec<RequestClass> {
    let is_first = |tenant: &str| first.iter().any(|it| it == tenant);
    let known = || generation.classes.iter();
    let firsts = known().filter(|(tenant, _)| is_first(tenant));
    let others = known().filter(|(tenant, _)| !is_first(tenant));
    let all = firsts.chain(others).flat_map(|(tenant, classes)| {
        let classes = classes.iter();
        classes.map(move |class| (tenant, class))
    });
    let told = all.map(|(tenant, class)| {
        let [waited, waited_us, refused] = class.stats.counts();
        RequestClass {
            tenant: tenant.to_string(),
            class: class.name.to_string(),
            waited,
            waited_us,
            refused,
        }
    });
    let told = told.filter(|it| it.waited + it.refused > 0);
    told.take(CLASSES_MAX).collect()
}
