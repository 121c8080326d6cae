//! Who joins a pool that runs, and whose rest is ended.

use super::super::super::pool::ACCEPTS_MAX;
use super::*;

#[test]
fn who_joins_waits_until_nobody_accepts_who_was_told_something_else() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    let is_told = |world: &World, ask| matches!(world.said[&(1, ask)][..], [.., Word::Warm]);
    // Of one that does not run it is the next start, as for everybody.
    world.join("p", &own, 1);
    world.ready(1);
    assert!(is_told(&world, 1));
    world.join("p", &own, 2);
    assert_eq!(world.said[&(1, 2)], [Word::Warm], "it runs as it is to");
    world.machine.restart("p", WHY, world.now);
    world.obey();
    world.join("p", &own, 3);
    world.want("p", &own, 4);
    assert!(is_told(&world, 4) && !is_told(&world, 3));
    // Told anew meanwhile: the one that comes is no good either.
    world.machine.restart("p", WHY, world.now);
    world.ready(2);
    assert!(!is_told(&world, 3));
    world.ready(3);
    assert_eq!(world.quit, [1, 2]);
    world.gone(1);
    assert!(!is_told(&world, 3), "the second may still accept");
    world.gone(2);
    assert!(is_told(&world, 3));
    // One that has much to finish is not waited for: it accepts no more.
    world.machine.restart("p", WHY, world.now);
    world.obey();
    world.ready(4);
    world.join("p", &own, 5);
    let until = world.machine.tick(world.now);
    assert_eq!(until, Some(world.now + ACCEPTS_MAX));
    assert!(matches!(world.last(5), Word::Warming(wait) if *wait == ACCEPTS_MAX));
    world.after(ACCEPTS_MAX);
    assert!(is_told(&world, 5));
}

#[test]
fn a_hand_over_that_fails_refuses_who_joins_and_nobody_else() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    world.want("p", &own, 1);
    world.ready(1);
    world.machine.restart("p", WHY, world.now);
    world.obey();
    world.join("p", &own, 2);
    world.died(2);
    world.gone(2);
    for ask in [2, 3] {
        assert!(matches!(world.last(ask), Word::Not { retry, .. } if *retry == REST));
        world.join("p", &own, 3);
        world.want("p", &own, 4);
        assert_eq!(world.last(4), &Word::Warm);
    }
}

#[test]
fn a_pool_that_ends_while_its_hand_over_waits_is_not_started_for_nobody() {
    let (own, other) = (terms("a", Some(10)), terms("b", Some(600)));
    for is_stopped in [true, false] {
        let mut world = World::new(1, &[("p", own.clone()), ("q", other.clone())]);
        world.want("p", &own, 1);
        world.ready(1);
        world.want("q", &other, 2);
        world.machine.restart("p", WHY, world.now);
        world.obey();
        match is_stopped {
            true => drop(world.machine.stop("p", WHY, world.now)),
            false => world.now += Duration::from_secs(10),
        }
        world.after(Duration::ZERO);
        assert_eq!(world.quit, [1]);
        world.gone(1);
        assert_eq!(world.state("p"), PoolState::Cold);
        world.ready(2);
        assert_eq!(world.coming(), [0_u64; 0]);
        world.want("p", &own, 3);
        assert_eq!(world.coming(), [3]);
    }
}

#[test]
fn a_rest_can_be_ended() {
    let own = terms("a", Some(600));
    let mut world = World::new(2, &[("p", own.clone())]);
    assert!(!world.machine.forgive("p", world.now), "nothing has failed");
    world.want("p", &own, 1);
    world.died(1);
    world.gone(1);
    assert_eq!(world.state("p"), PoolState::Failed);
    assert!(world.machine.forgive("p", world.now));
    assert!(!world.machine.forgive("p", world.now), "once");
    assert_eq!(world.state("p"), PoolState::Cold);
    world.want("p", &own, 2);
    assert_eq!(world.coming(), [2]);
}
