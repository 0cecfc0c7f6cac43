//! The simulated world: the same seed is the same run, seeds hold, and planted faults are found.

use std::process::Command;

use conformance::world::{Amount, finds, planted, play, swarm};

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..10 {
        let (first, second) = (play(seed).trace, play(seed).trace);
        let differs = first.iter().zip(&second).find(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn another_process_plays_the_same_run() {
    for seed in [3, 11] {
        let said = Command::new(env!("CARGO_BIN_EXE_conformance"))
            .args(["sim", "--seed", &seed.to_string()])
            .output()
            .expect("the command of this package runs");
        let said = String::from_utf8(said.stdout).expect("a trace is text");
        let here = play(seed);
        let here: Vec<String> = here.trace.into_iter().chain(here.problems).collect();
        assert_eq!(said.lines().collect::<Vec<_>>(), here, "seed {seed}");
    }
}

#[test]
fn some_hundred_seeds_hold() {
    let swarm = swarm(Amount::Seeds(100), |_| {});
    assert!(swarm.failures.is_empty(), "{:#?}", swarm.failures);
    // Every crash point that was passed, and every fault that was met, has its place in the table.
    assert!(swarm.beyond.is_empty(), "{:#?}", swarm.beyond);
}

#[test]
fn every_planted_fault_is_found_by_its_seed() {
    // `sim --planted all` looks for one; another way to make schedules has other seeds.
    let missed: Vec<_> = planted().iter().filter(|(_, fault, seed)| !finds(*fault, *seed)).collect();
    assert!(missed.is_empty(), "not found by their seeds: {missed:#?}");
}
