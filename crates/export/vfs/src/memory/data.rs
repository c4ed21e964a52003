use std::collections::BTreeMap;

pub(super) const PAGE_LEN: u64 = 4096;

pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

#[derive(Clone, Default)]
pub(super) struct Data {
    pub(super) size: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_LEN as usize]>>,
}

impl Data {
    pub(super) fn used(&self) -> u64 {
        self.pages.len() as u64 * PAGE_LEN
    }

    pub(super) fn needs(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE_LEN, (offset + len - 1) / PAGE_LEN);
        let have = self.pages.range(first..=last).count() as u64;
        (last - first + 1 - have) * PAGE_LEN
    }

    pub(super) fn read(&self, offset: u64, len: usize, into: &mut Vec<u8>) -> usize {
        let len = (self.size.saturating_sub(offset)).min(len as u64) as usize;
        let start = into.len();
        into.resize(start + len, 0);
        each_page(offset, len, |page, at, range| {
            if let Some(bytes) = self.pages.get(&page) {
                let n = range.len();
                into[start + range.start..start + range.end].copy_from_slice(&bytes[at..at + n]);
            }
        });
        len
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        each_page(offset, data.len(), |page, at, range| {
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_LEN as usize]));
            let n = range.len();
            bytes[at..at + n].copy_from_slice(&data[range]);
        });
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    pub(super) fn allocate(&mut self, offset: u64, len: u64) {
        for page in offset / PAGE_LEN..=(offset + len - 1) / PAGE_LEN {
            self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_LEN as usize]));
        }
        self.size = self.size.max(offset + len);
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.punch(size, self.size.next_multiple_of(PAGE_LEN).max(size + PAGE_LEN) - size);
            self.pages.split_off(&size.div_ceil(PAGE_LEN));
        }
        self.size = size;
    }

    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> = self
            .pages
            .range(offset / PAGE_LEN..end.div_ceil(PAGE_LEN))
            .map(|(&page, _)| page)
            .collect();
        for page in touched {
            let (start, stop) = (page * PAGE_LEN, (page + 1) * PAGE_LEN);
            if offset <= start && stop <= end {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[(offset.max(start) - start) as usize..(end.min(stop) - start) as usize]
                    .fill(0);
            }
        }
    }

    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let (&page, _) = self.pages.range(offset / PAGE_LEN..).next()?;
        let at = (page * PAGE_LEN).max(offset);
        (at < self.size).then_some(at)
    }

    pub(super) fn next_hole(&self, offset: u64) -> u64 {
        let mut page = offset / PAGE_LEN;
        while self.pages.contains_key(&page) {
            page += 1;
        }
        (page * PAGE_LEN).max(offset).min(self.size)
    }
}

fn each_page(offset: u64, len: usize, mut each: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let position = offset + done as u64;
        let at = (position % PAGE_LEN) as usize;
        let n = (len - done).min(PAGE_LEN as usize - at);
        each(position / PAGE_LEN, at, done..done + n);
        done += n;
    }
}
