use vouch_tree::{Content, HostId, Timestamp};

use super::*;
use crate::attributes::tests::file;

struct Tree(InodeNumbering);

impl Owner for Tree {
    fn numbering(&self) -> &InodeNumbering {
        &self.0
    }

    fn number(&self) -> u32 {
        7
    }
}

fn directory(mtime: i64) -> Inode {
    let content = Content::Directory { entries: 1, subdirs: 0, opaque: false, top: None };
    Inode { mtime: Timestamp { s: mtime, ns: 0 }, ..Inode::new(0o755, content) }
}

fn table() -> (NodeTable<Tree>, Arc<Tree>) {
    let (table, tree) = (
        NodeTable::default(),
        Arc::new(Tree(InodeNumbering::of_tree(&HostId::of_root_key(&[1; 32])))),
    );
    table.insert_root(Some(tree.clone()), Arc::new(directory(0)));
    (table, tree)
}

fn insert(table: &NodeTable<Tree>, directory: NodeId, name: &str, inode: &Inode) -> NodeId {
    let seen = table.get(directory).unwrap().inode;
    table.lock_directory(directory, &seen).ok().unwrap().insert(name.as_bytes(), inode).unwrap()
}

fn known(id: NodeId, name: &str) -> KnownChild {
    KnownChild { id, name: name.as_bytes().into() }
}

#[test]
fn node_lives_while_it_or_a_child_is_held() {
    let (table, _) = table();
    let d = insert(&table, NodeId::ROOT, "d", &directory(0));
    let f = insert(&table, d, "f", &file(1, 0));
    assert_eq!(insert(&table, d, "f", &file(1, 0)), f);
    table.forget(d, 1);
    assert_eq!(table.len(), 3, "the path of the file is needed");
    table.forget(f, 1);
    assert_eq!(table.len(), 3);
    table.forget(f, 1);
    assert_eq!(table.len(), 1, "only the root remains");
    table.forget(f, 5);
    table.forget(NodeId::ROOT, 5);
    assert_eq!(table.len(), 1);
}

#[test]
fn random_lookups_and_forgets_leak_nothing() {
    let (table, _) = table();
    let (mut state, mut held) = (88_172_645_463_325_252u64, Vec::new());
    let mut draw = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % n
    };
    for _ in 0..20_000 {
        let directories: Vec<NodeId> = held
            .iter()
            .filter(|(_, is_directory)| *is_directory)
            .map(|(id, _)| *id)
            .chain([NodeId::ROOT])
            .collect();
        let parent = directories[draw(directories.len())];
        match draw(5) {
            0 if directories.len() < 50 => {
                held.push((insert(&table, parent, &format!("d{}", draw(5)), &directory(0)), true))
            }
            1 => held.push((insert(&table, parent, &format!("f{}", draw(9)), &file(3, 0)), false)),
            2 => held.push((
                insert(&table, parent, &format!("l{}", draw(9)), &file(3, 1 + draw(4) as u64)),
                false,
            )),
            _ if !held.is_empty() => table.forget(held.swap_remove(draw(held.len())).0, 1),
            _ => {}
        }
        assert!(held.iter().all(|(id, _)| table.get(*id).is_some()));
    }
    held.drain(..).for_each(|(id, _)| table.forget(id, 1));
    assert_eq!(table.len(), 1);
    assert!(table.inner.lock().children.is_empty());
}

#[test]
fn refuses_entries_of_outdated_directory() {
    let (table, _) = table();
    let seen = table.get(NodeId::ROOT).unwrap().inode;
    table.move_directory(NodeId::ROOT, &Arc::new(directory(1)), &[]).unwrap();
    assert!(table.lock_directory(NodeId::ROOT, &seen).is_err());
}

#[test]
fn reports_names_added_during_update() {
    let (table, _) = table();
    let a = insert(&table, NodeId::ROOT, "a", &file(1, 0));
    let before = table.children(NodeId::ROOT);
    assert_eq!(before, [known(a, "a")]);
    let b = insert(&table, NodeId::ROOT, "b", &file(1, 0));
    let moved = table.move_directory(NodeId::ROOT, &Arc::new(directory(1)), &before);
    assert_eq!(moved.unwrap_err(), [known(b, "b")]);
    assert_eq!(table.get(NodeId::ROOT).unwrap().inode.mtime.s, 0);
}

#[test]
fn node_follows_path_until_type_changes() {
    let (table, tree) = table();
    let f = insert(&table, NodeId::ROOT, "f", &file(1, 0));
    assert_eq!(table.update(&tree, NodeId::ROOT, &known(f, "f"), Some(&file(9, 0))), Updated::Same);
    assert_eq!(table.get(f).unwrap().inode.size(), 9);
    assert_eq!(
        table.update(&tree, NodeId::ROOT, &known(f, "f"), Some(&directory(0))),
        Updated::Gone
    );
    assert!(table.get(f).unwrap().is_removed);
    assert_eq!(table.update(&tree, NodeId::ROOT, &known(f, "f"), Some(&file(2, 0))), Updated::Same);
    assert!(!table.get(f).unwrap().is_removed, "the entry exists again");
    table.forget(f, 1);
    assert_eq!(table.update(&tree, NodeId::ROOT, &known(f, "f"), None), Updated::Unknown);
}

#[test]
fn file_is_removed_with_its_last_name() {
    let (table, tree) = table();
    let d = insert(&table, NodeId::ROOT, "d", &directory(0));
    let one = insert(&table, NodeId::ROOT, "one", &file(1, 7));
    assert_eq!(insert(&table, d, "two", &file(1, 7)), one);
    assert_eq!(table.update(&tree, NodeId::ROOT, &known(one, "one"), None), Updated::Renumbered);
    assert!(!table.get(one).unwrap().is_removed);
    assert_eq!(table.remove_below(d), [one]);
    assert!(table.get(one).unwrap().is_removed && table.remove_below(d).is_empty());
    table.forget(one, 2);
    table.forget(d, 1);
    assert_eq!(table.len(), 1);
}
