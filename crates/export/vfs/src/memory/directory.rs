use std::collections::BTreeMap;

pub(super) const COOKIE_MIN: u64 = 3;

#[derive(Clone)]
pub(super) struct Directory {
    pub(super) parent: u64,
    by_name: BTreeMap<Vec<u8>, (u64, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: u64) -> Self {
        Directory {
            parent,
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            next_cookie: COOKIE_MIN,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|&(number, _)| number)
    }

    pub(super) fn insert(&mut self, name: &[u8], number: u64) {
        self.remove(name);
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_name.insert(name.to_vec(), (number, cookie));
        self.by_cookie.insert(cookie, name.to_vec());
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        self.by_cookie
            .range(cookie + 1..)
            .filter_map(|(&cookie, name)| Some((cookie, name.as_slice(), self.get(name)?)))
    }

    pub(super) fn knows(&self, cookie: u64) -> bool {
        cookie == 0 || (COOKIE_MIN..self.next_cookie).contains(&cookie)
    }

    pub(super) fn name_of(&self, number: u64) -> Option<&[u8]> {
        self.by_name.iter().find(|(_, entry)| entry.0 == number).map(|(name, _)| name.as_slice())
    }
}
