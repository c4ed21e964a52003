//! The numbers that the kernel gives its events, one after the other since the boot: how many came
//! that nobody has read. It may send them in a slightly other order.

/// What has been read.
#[derive(Debug)]
pub(super) struct Serials {
    /// The newest, of this program or the one before.
    newest: Option<u32>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Each is read, as far as the kernel has told.
    Whole,
    /// Nothing was read yet since the program before.
    Begun,
    /// The kernel has thrown some away after this one; so many have been read since. Those that
    /// waited come first.
    Lost { after: u32, read: u64, is_empty: bool },
}

impl Serials {
    /// After the last event that is known of this boot, if any is.
    pub(super) fn after(last: Option<u32>) -> Self {
        Serials { newest: last, state: State::Begun }
    }

    /// A line of this event was read: how many events were not, if that is to be told now.
    pub(super) fn see(&mut self, serial: u32) -> Option<u64> {
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
            State::Lost { after, read, .. } => {
                serial.wrapping_sub(*after).saturating_sub(1).saturating_sub(u32::try_from(*read).unwrap_or(u32::MAX))
            }
        };
        self.state = State::Whole;
        (missed > 0).then_some(missed.into())
    }

    /// The kernel has thrown some away.
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

    /// All that the kernel had to send was read.
    pub(super) fn are_read(&mut self) {
        if let State::Lost { is_empty, .. } = &mut self.state {
            *is_empty = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(serials: &mut Serials, seen: &[u32]) -> Vec<u64> {
        seen.iter().filter_map(|serial| serials.see(*serial)).collect()
    }

    #[test]
    fn what_came_while_nobody_listened_is_counted_at_the_first_event() {
        assert_eq!(told(&mut Serials::after(Some(10)), &[15, 15, 16, 20, 19]), [4]);
        assert_eq!(told(&mut Serials::after(Some(10)), &[11, 12]), [0; 0]);
        assert_eq!(told(&mut Serials::after(Some(u32::MAX)), &[2]), [2]);
        // Still some of the last one; and nothing is known.
        assert_eq!(told(&mut Serials::after(Some(10)), &[10, 12]), [1]);
        assert_eq!(told(&mut Serials::after(None), &[700, 900]), [0; 0]);
    }

    #[test]
    fn what_the_kernel_threw_away_is_counted_when_another_event_has_come() {
        let mut serials = Serials::after(None);
        told(&mut serials, &[1, 2]);
        serials.are_lost();
        // These waited.
        assert_eq!(told(&mut serials, &[3, 4, 4]), [0; 0]);
        serials.are_lost();
        assert_eq!(told(&mut serials, &[6]), [0; 0]);
        serials.are_read();
        assert_eq!(told(&mut serials, &[10, 11, 20]), [4], "5, and 7 to 9");
    }
}
