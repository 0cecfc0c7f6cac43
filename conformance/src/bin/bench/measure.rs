//! Measuring two ways of doing one thing, turn by turn in one run, and saying how they compare.

use std::time::{Duration, Instant};

use serde::Serialize;

/// The middle and the tail of one side's times, in the figure's unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) p50: f64,
    /// 95 of 100 are at most this.
    pub(crate) p95: f64,
    /// 99 of 100 are at most this.
    pub(crate) p99: f64,
}

/// One figure: ours beside what a user would run instead.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) figure: String,
    /// The unit of both sides.
    pub(crate) unit: &'static str,
    /// How often each side was measured.
    pub(crate) rounds: usize,
    /// Ours.
    pub(crate) ours: Spread,
    /// The other's; `None` where the bar is a time of its own.
    pub(crate) other: Option<Spread>,
    /// What the other is.
    pub(crate) beside: String,
    /// Ours by the other's, at the median; where there is no other, ours by the bar.
    pub(crate) ratio: f64,
    /// Ours by the other's at p99.
    pub(crate) ratio_p99: Option<f64>,
    /// The most that `ratio` may be.
    pub(crate) bar: f64,
    /// The most that `ratio_p99` may be, where that is bounded.
    pub(crate) bar_p99: Option<f64>,
    /// Whether the bars hold.
    pub(crate) ok: bool,
}

/// What a figure must reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    /// At the median.
    pub(crate) p50: f64,
    /// At p99, where that is bounded.
    pub(crate) p99: Option<f64>,
}

/// Takes one time.
pub(crate) async fn timed<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<Duration, E> {
    let began = Instant::now();
    work.await?;
    Ok(began.elapsed())
}

fn spread(times: &[Duration]) -> Spread {
    let mut ms: Vec<f64> = times.iter().map(|t| t.as_secs_f64() * 1000.0).collect();
    ms.sort_by(f64::total_cmp);
    // The nearest rank: a time that was really measured.
    let at = |share: f64| {
        let rank = (share * ms.len() as f64).ceil() as usize;
        ms.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    };
    let round = |x: f64| (x * 1000.0).round() / 1000.0;
    Spread { p50: round(at(0.5)), p95: round(at(0.95)), p99: round(at(0.99)) }
}

/// Compares the two sides' times.
pub(crate) fn compare(figure: &str, beside: &str, ours: &[Duration], other: &[Duration], bar: Bar) -> Figure {
    let (mine, theirs) = (spread(ours), spread(other));
    let (ratio, ratio_p99) = (mine.p50 / theirs.p50, mine.p99 / theirs.p99);
    Figure {
        figure: figure.to_owned(),
        unit: "ms",
        rounds: ours.len(),
        ours: mine,
        other: Some(theirs),
        beside: beside.to_owned(),
        ratio: (ratio * 1000.0).round() / 1000.0,
        ratio_p99: Some((ratio_p99 * 1000.0).round() / 1000.0),
        bar: bar.p50,
        bar_p99: bar.p99,
        ok: ratio <= bar.p50 && bar.p99.is_none_or(|most| ratio_p99 <= most),
    }
}

/// Holds one side's times against a time of its own.
pub(crate) fn within(figure: &str, ours: &[Duration], most: Duration) -> Figure {
    let mine = spread(ours);
    let ratio = mine.p50 / (most.as_secs_f64() * 1000.0);
    Figure {
        figure: figure.to_owned(),
        unit: "ms",
        rounds: ours.len(),
        ours: mine,
        other: None,
        beside: format!("at most {} ms", most.as_millis()),
        ratio: (ratio * 1000.0).round() / 1000.0,
        ratio_p99: None,
        bar: 1.0,
        bar_p99: None,
        ok: ratio <= 1.0,
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.ok { "ok" } else { "MISSED" };
        write!(f, "{:<34} {:>10.2} {}", self.figure, self.ours.p50, self.unit)?;
        if let Some(other) = self.other {
            write!(f, " beside {:>10.2}", other.p50)?;
        }
        write!(f, "  ratio {:.3} (bar {})", self.ratio, self.bar)?;
        if let (Some(ratio), Some(bar)) = (self.ratio_p99, self.bar_p99) {
            write!(f, ", p99 {ratio:.3} (bar {bar})")?;
        }
        write!(f, "  {verdict}  [{}; {} rounds]", self.beside, self.rounds)
    }
}
