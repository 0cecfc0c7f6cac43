//! Whom a sweep waits for just now: said each time that changes, for whoever watches it.
//!
//! It times nothing and ends nothing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// Told whom a sweep waits for, such as `one, two`.
pub(super) type Told<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Whom a sweep waits for, and how many answers of each.
pub(super) struct Waits<'a> {
    told: Told<'a>,
    on: Mutex<BTreeMap<String, usize>>,
}

impl<'a> Waits<'a> {
    pub(super) fn new(told: Told<'a>) -> Self {
        Self { told, on: Mutex::default() }
    }

    /// Does `work`, which waits for `whom`.
    pub(super) async fn on<T>(&self, whom: String, work: impl Future<Output = T>) -> T {
        self.change(|on| *on.entry(whom.clone()).or_default() += 1);
        let done = work.await;
        self.change(|on| match on.get_mut(&whom) {
            Some(answers) if *answers > 1 => *answers -= 1,
            _ => drop(on.remove(&whom)),
        });
        done
    }

    fn change(&self, with: impl FnOnce(&mut BTreeMap<String, usize>)) {
        let mut on = self.on.lock().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<_> = on.keys().cloned().collect();
        with(&mut on);
        if !on.is_empty() && !on.keys().eq(&before) {
            let names: Vec<_> = on.keys().map(String::as_str).collect();
            (self.told)(&names.join(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_is_waited_for_is_told_when_that_changes() {
        let said = Mutex::new(Vec::new());
        let told = |names: &str| said.lock().unwrap().push(names.to_owned());
        let waits = Waits::new(&told);
        waits.on("one".into(), waits.on("two".into(), waits.on("one".into(), async {}))).await;
        assert_eq!(*said.lock().unwrap(), ["one", "one, two", "one"]);
    }
}
