//! Outages: connections that were lost and made again, and how long nothing was answered.

use super::Generator;
use stag_verbs::Time;

/// Outages that are written down; more are counted in the last one.
const OUTAGES_MAX: usize = 256;

/// Losses of connections, when the run goes on behind them.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// Connections are made again: a loss does not end the run.
    pub(super) is_wanted: bool,
    open: Option<Time>,
    all: Vec<(Time, Time)>,
}

impl Outages {
    pub(super) fn new(is_wanted: bool) -> Self {
        let all = Vec::with_capacity(if is_wanted { OUTAGES_MAX } else { 0 });
        Self { is_wanted, open: None, all }
    }

    /// A connection was lost, or an attempt to make it again failed.
    pub(super) fn lose(&mut self, now: Time) {
        self.open.get_or_insert(now);
    }

    /// A call was answered: an outage, if there is one, is over.
    #[inline]
    pub(super) fn answer(&mut self, now: Time) {
        if self.open.is_some() {
            self.close(now);
        }
    }

    /// The run is over.
    #[cold]
    pub(super) fn close(&mut self, now: Time) {
        let Some(from) = self.open.take() else { return };
        if self.all.len() < OUTAGES_MAX {
            self.all.push((from, now));
        } else if let Some((_, until)) = self.all.last_mut() {
            *until = now;
        }
    }

    /// Returns the start and the end of each.
    fn all(&self) -> &[(Time, Time)] {
        &self.all
    }
}

impl Generator {
    /// Connections that are lost are made again, and do not end the run.
    pub(crate) fn keep_on(&mut self) {
        self.outages = Outages::new(true);
    }

    /// From when nothing was answered because a connection was lost, and until when.
    pub fn outages(&self) -> &[(Time, Time)] {
        self.outages.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_first_loss_to_the_next_answer() {
        let mut outages = Outages::new(true);
        outages.answer(Time(5));
        outages.lose(Time(10));
        outages.lose(Time(20));
        outages.answer(Time(35));
        outages.answer(Time(40));
        outages.lose(Time(50));
        outages.close(Time(60));
        assert_eq!(outages.all(), [(Time(10), Time(35)), (Time(50), Time(60))]);
        for at in 0..1_000 {
            outages.lose(Time(100 + at * 2));
            outages.answer(Time(101 + at * 2));
        }
        assert_eq!(outages.all().len(), OUTAGES_MAX);
        assert_eq!(outages.all().last().unwrap().1, Time(2_099));
    }
}
