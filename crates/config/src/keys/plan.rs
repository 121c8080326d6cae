//! Keys of `[plans.NAME]`, and of what sites of a directory say beside others.

use super::amounts::{DAY, SECOND};
use super::key::Fallback::{Absent, Required, Value};
use super::key::{Key, Kind, Section, key};
use super::limit::{LIMITS_OF_LEVEL, WEIGHT};
use super::program::{CGROUP_OF_LEVEL, CGROUP_REQUIRED};

pub(super) const PLANS: Key = key(
    "plans",
    Kind::Other("table of tables"),
    Value("{}"),
    "Plans, by name: what tenants have in common that are sold the same.",
    "plans = { small = { weight = 1 } }",
);

pub(super) const PLAN_OF_TENANT: Key = key(
    "plan",
    Kind::Text,
    Absent("no plan"),
    "The plan whose limits the tenant has beside its own, and whose `weight`, `cgroup` and `console` where it says none. Of two limits of \
     one name its own counts.",
    "plan = \"small\"",
);

pub(super) const CONSOLE_OF_TENANT: Key = key(
    "console",
    Kind::Flag,
    Value("true"),
    "Whether a tenant may look at its own figures, where a site has a console that shows it `\"$tenant\"` or what a panel's link \
     names: with `false` it is refused with 403 (`console_not_in_plan`).",
    "console = false",
);

pub(super) const PLAN_OF_SITE: Key = key(
    "plan",
    Kind::Text,
    Absent("no plan"),
    "On a directory's sites alone: the plan of the row's tenant, by its name, or as the row says: `\"$row.plan\"`. A row that \
     names none, where this asks it, has no plan; one that names another than there are is wrong.",
    "plan = \"$row.plan\"",
);

pub(crate) const PLAN: Section = Section {
    title: "[plans.NAME]",
    about: "A plan: what tenants have in common that are sold the same. Tenants name it, and sites of a directory. Its limits \
        count each of its tenants apart. A name is letters, digits, `-` and `_`.",
    keys: &[
        WEIGHT,
        LIMITS_OF_LEVEL,
        CGROUP_OF_LEVEL,
        CGROUP_REQUIRED,
        key(
            "pool",
            Kind::Other("table"),
            Absent("sites say it"),
            "How many pages of PHP its tenants run at once, and how long. What a site of a tenant says itself comes first; on a site of a \
             directory, which stands for all plans, this does.",
            "pool = { processes = 2 }",
        ),
        CONSOLE_OF_TENANT,
    ],
};

pub(crate) const PLAN_POOL: Section = Section {
    title: "pool = { … } of [plans.NAME]",
    about: "What a plan says of its tenants' pools with PHP.",
    keys: &[
        key(
            "processes",
            Kind::Count(1, 1_024),
            Absent("the site says it"),
            "Pages that PHP runs at once, as in a site's `pool`.",
            "processes = 2",
        ),
        key(
            "requests",
            Kind::Count(1, 1_000_000),
            Absent("the site says it"),
            "Pages that a process of PHP runs before another takes its place, as in a site's `pool`.",
            "requests = 500",
        ),
        key(
            "time",
            Kind::Duration(SECOND, DAY),
            Absent("the site says it"),
            "How long a page may take in all, in whole seconds, as in a site's `pool`.",
            "time = \"30s\"",
        ),
    ],
};

pub(crate) const HOSTS: Section = Section {
    title: "hosts = { … }",
    about: "Hosts that rows of a directory name.",
    keys: &[key(
        "directory",
        Kind::Text,
        Required,
        "The directory, by its name in `[directories.NAME]`. Every host that has a row there has this site, with the row's \
         columns in its texts: `$row.NAME` or `${row.NAME}`; a column that the row does not have is empty. \
         Beside those that the site names, `suspended` (anything but `0`, `no` and `false` refuses the tenant's requests with \
         503), and `redirect` (a host that requests are sent to, with 301) have a meaning.",
        "directory = \"customers\"",
    )],
};
