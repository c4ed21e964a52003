//! By the serial numbers of kernel audit events since boot. The kernel may slightly reorder events.

#[derive(Debug)]
pub(super) struct Serials {
    newest: Option<u32>,
    state: State,
}

#[derive(Debug)]
enum State {
    Whole,
    Begun,
    /// The kernel dropped events after this one; `read` events were read since. Queued events come
    /// first.
    Lost {
        after: u32,
        read: u64,
        is_empty: bool,
    },
}

impl Serials {
    pub(super) fn after(last: Option<u32>) -> Self {
        Serials { newest: last, state: State::Begun }
    }

    /// Notes an event line. Returns the number of missed events when it is known.
    pub(super) fn count_missed_before(&mut self, serial: u32) -> Option<u64> {
        let Some(newest) = self.newest else {
            (self.newest, self.state) = (Some(serial), State::Whole);
            return None;
        };
        let ahead = serial.wrapping_sub(newest);
        if ahead == 0 || ahead > u32::MAX / 2 {
            return None;
        }
        self.newest = Some(serial);
        let missed = match &mut self.state {
            State::Whole => return None,
            State::Begun => ahead - 1,
            State::Lost { read, is_empty: false, .. } => {
                *read += 1;
                return None;
            }
            State::Lost { after, read, .. } => serial
                .wrapping_sub(*after)
                .saturating_sub(1)
                .saturating_sub(u32::try_from(*read).unwrap_or(u32::MAX)),
        };
        self.state = State::Whole;
        (missed > 0).then_some(missed.into())
    }

    pub(super) fn are_lost(&mut self) {
        match &mut self.state {
            State::Lost { is_empty, .. } => *is_empty = false,
            state => {
                if let Some(after) = self.newest {
                    *state = State::Lost { after, read: 0, is_empty: false };
                }
            }
        }
    }

    pub(super) fn are_read(&mut self) {
        if let State::Lost { is_empty, .. } = &mut self.state {
            *is_empty = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(serials: &mut Serials, seen: &[u32]) -> Vec<u64> {
        seen.iter().filter_map(|serial| serials.count_missed_before(*serial)).collect()
    }

    #[test]
    fn events_missed_while_stopped_are_counted() {
        assert_eq!(feed(&mut Serials::after(Some(10)), &[15, 15, 16, 20, 19]), [4]);
        assert_eq!(feed(&mut Serials::after(Some(10)), &[11, 12]), [0; 0]);
        assert_eq!(feed(&mut Serials::after(Some(u32::MAX)), &[2]), [2]);
        assert_eq!(feed(&mut Serials::after(Some(10)), &[10, 12]), [1]);
        assert_eq!(feed(&mut Serials::after(None), &[700, 900]), [0; 0]);
    }

    #[test]
    fn events_dropped_by_kernel_are_counted_at_next_event() {
        let mut serials = Serials::after(None);
        feed(&mut serials, &[1, 2]);
        serials.are_lost();
        assert_eq!(feed(&mut serials, &[3, 4, 4]), [0; 0]);
        serials.are_lost();
        assert_eq!(feed(&mut serials, &[6]), [0; 0]);
        serials.are_read();
        assert_eq!(feed(&mut serials, &[10, 11, 20]), [4], "5, and 7 to 9");
    }
}
