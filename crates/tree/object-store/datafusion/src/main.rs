//! `vouch-datafusion NAME DIRECTORY SQL`: a query on the Parquet files of a directory in a published
//! tree, which the query calls `data`. Each byte that DataFusion reads is verified.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionContext};
use url::Url;
use vouch_object_store::TreeStore;
use vouch_tree_client::{Client, ClientOptions, TreeOptions};

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, directory, sql] = &arguments[..] else {
        return Err("usage: vouch-datafusion NAME DIRECTORY SQL".into());
    };
    let client = Client::new(ClientOptions::default())?;
    let tree = client.open(&name.parse()?, &TreeOptions::default()).await?;
    let store = TreeStore::new(tree.clone(), tree.revision()?);
    query(store, directory, sql).await?.show().await?;
    Ok(())
}

/// The query finds the files of the directory as the table `data`.
async fn query(store: TreeStore, directory: &str, sql: &str) -> Result<DataFrame> {
    let context = SessionContext::new();
    let url = Url::parse("vouch://tree").expect("a valid URL");
    context.register_object_store(&url, Arc::new(store));
    let files = format!("vouch://tree/{directory}/");
    context.register_parquet("data", files, ParquetReadOptions::default()).await?;
    context.sql(sql).await
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::SystemTime;

    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::dataframe::DataFrameWriteOptions;
    use vouch_tree::key::{SecretKey, SigningCert};
    use vouch_tree::{Iv, TreeName};
    use vouch_tree_client::LocalConnector;
    use vouch_tree_publish::{Options, Progress, Signer, publish};
    use vouch_tree_store::{Database, WriteOptions};

    use super::*;

    /// Writes a Parquet file of rows `n`, `square`.
    async fn write(path: &Path, numbers: std::ops::Range<i64>) {
        let rows = format!(
            "select value as n, value * value as square from generate_series({}, {})",
            numbers.start,
            numbers.end - 1
        );
        let rows = SessionContext::new().sql(&rows).await.expect("rows");
        let path = path.to_str().expect("a name");
        rows.write_parquet(path, DataFrameWriteOptions::new(), None).await.expect("a file");
    }

    fn publish_into(db: &Path, source: &Path) {
        let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let cert = SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2);
        let name = TreeName::new("localhost", root.public().hostid()).expect("a name");
        Database::create(db, *name.hostid(), Iv::from_bytes([3; 32])).expect("a database");
        let now = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
        let writer = Database::open_write(db, WriteOptions::default()).expect("a writer");
        let options = Options::new(source.to_owned(), name, now, 3600);
        publish(&writer, &Signer { key: &key, cert }, &options, &Progress::default())
            .expect("a revision");
    }

    fn numbers(batches: &[RecordBatch], column: usize) -> Vec<i64> {
        let of_batch = |batch: &RecordBatch| {
            let column = batch.column(column).as_any().downcast_ref::<Int64Array>();
            column.expect("numbers").values().to_vec()
        };
        batches.iter().flat_map(of_batch).collect()
    }

    #[tokio::test]
    async fn datafusion_reads_the_files_of_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (source, db) = (dir.path().join("source"), dir.path().join("db"));
        std::fs::create_dir_all(source.join("table")).expect("a directory");
        for part in 0..3 {
            let file = source.join(format!("table/{part}.parquet"));
            write(&file, part * 10_000..(part + 1) * 10_000).await;
        }
        publish_into(&db, &source);
        let connector = LocalConnector::open(&db).expect("a replica");
        let name = connector.name().expect("a name");
        let options = ClientOptions { connector: Arc::new(connector), ..ClientOptions::default() };
        let client = Client::new(options).expect("a client");
        let tree = client.open(&name, &TreeOptions::default()).await.expect("a tree");
        let store = TreeStore::new(tree.clone(), tree.revision().expect("fresh"));

        let all = "select count(*), sum(n) from data";
        let found = query(store.clone(), "table", all).await.expect("a plan");
        let found = found.collect().await.expect("rows");
        assert_eq!((numbers(&found, 0), numbers(&found, 1)), (vec![30_000], vec![449_985_000]));
        let few = "select square from data where n >= 29998 order by n";
        let found = query(store, "table", few).await.expect("a plan");
        let found = found.collect().await.expect("rows");
        assert_eq!(numbers(&found, 0), [29_998 * 29_998, 29_999 * 29_999]);
    }
}
