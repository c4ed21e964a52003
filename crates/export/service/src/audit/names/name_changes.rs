use vouch_audit::rules::Rules;
use vouch_nfs4_server::{EventPaths, Export, ExportId, NameChange, NameOrder};
use vouch_vfs::FileId;

use super::{DEPTH_MAX, LinkCertainty, Names, Node, ORDERS};

impl Names {
    pub(in crate::audit) fn order(&self, export: ExportId) -> Option<&NameOrder> {
        usize::try_from(export.0).ok().and_then(|number| self.orders.get(number % ORDERS))
    }

    pub(in crate::audit) fn name_changed(
        &self,
        export: &Export,
        op: u16,
        change: &NameChange<'_>,
        rules: &Rules,
    ) -> EventPaths {
        let (NameChange::Created(file, link)
        | NameChange::Linked(file, link)
        | NameChange::Removed(file, link)
        | NameChange::Renamed(file, link, _)) = *change;
        let others = |file: &FileId, path: &[u8]| self.others(export, Some(file), path, rules, op);
        let mut paths = EventPaths { file: Some(*file), ..EventPaths::default() };
        let moves = self.stamps.moves();
        match *change {
            NameChange::Linked(..) => paths.path = self.path(export, file).into(),
            _ => paths.path = self.path_below(export, Some(link.0), link.1).into(),
        }
        if let NameChange::Created(file, (directory, name)) = *change {
            self.found(export, file, (directory, name), (&paths.path, moves), rules);
        }
        paths.others = others(file, &paths.path);
        match *change {
            NameChange::Created(..) => {}
            NameChange::Linked(file, (directory, name)) => {
                paths.new_path = self.path_below(export, Some(directory), name).into();
                self.add_name(export, file, directory, name, rules);
                self.moved.found(rules, &paths.path, &paths.new_path);
            }
            NameChange::Removed(_, (directory, name)) => {
                paths
                    .others
                    .links
                    .iter()
                    .for_each(|other| self.moved.found(rules, &paths.path, other));
                self.forget_removed(export, directory, name, &paths.path);
                self.moved.removed(&paths.path);
            }
            NameChange::Renamed(file, from, to) => {
                paths.new_path = self.path_below(export, Some(to.0), to.1).into();
                if let Some(replaced) = self.child(export, to.0, to.1) {
                    paths.new_others = others(&replaced, &paths.new_path);
                    paths
                        .new_others
                        .links
                        .iter()
                        .for_each(|other| self.moved.found(rules, &paths.new_path, other));
                }
                let is_partial = Rules::is_partial(&paths.path) && !self.is_whole(export, from.0);
                self.moved.renamed(rules, &paths.path, &paths.new_path, is_partial);
                self.renamed(export, file, from, to, &paths.path, rules);
            }
        }
        paths
    }

    /// `path` is the old path.
    pub(super) fn renamed(
        &self,
        export: &Export,
        file: &FileId,
        (from, old): (&FileId, &[u8]),
        (to, new): (&FileId, &[u8]),
        path: &[u8],
        rules: &Rules,
    ) {
        self.forget(export, to, new);
        self.forget(export, from, old);
        self.unlink(export, &Node::of(export.id, file), &Node::of(export.id, from), old);
        self.learn(export, file, to, new, rules, LinkCertainty::No);
        // Paths below may have come from the file system.
        match self.path(export, from).is_empty() {
            true => self.stamps.all_moved(),
            false => self.stamps.moved(path),
        }
    }

    pub(super) fn is_whole(&self, export: &Export, directory: &FileId) -> bool {
        let root = Node::of(export.id, &export.file_system.root());
        let mut at = Node::of(export.id, directory);
        for _ in 0..DEPTH_MAX {
            match self.links.get(&at) {
                _ if at == root => return true,
                Some((parent, _)) => at = parent,
                None => return self.path_from_file_system(export, &at).is_some(),
            }
        }
        false
    }
}
