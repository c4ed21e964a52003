//! Contexts are ended at the server by who has no more use for them.

use std::time::{Duration, Instant};

use vouch_nfs4_client::{Client, Config, Pipeline};

use crate::callback_security::{Proving, renewing};
use crate::server::Shared;
use crate::{identity, root, server};

/// Waits until so many contexts were ended: their names.
async fn ended(world: &Shared, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(60);
    while world.lock().unwrap().ended.len() < count && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.lock().unwrap().ended.clone()
}

#[tokio::test]
async fn a_client_that_is_closed_ends_its_context() {
    for minor in [0, 1] {
        let (address, world) = server::start().await;
        let client = Client::connect(Config::new(address, minor, identity(), Proving::new(1))).await.unwrap();
        root(&client).await;
        assert!(world.lock().unwrap().ended.is_empty());
        client.close().await.unwrap();
        // It has waited for the answer.
        assert_eq!(world.lock().unwrap().ended, [[1; 16]], "4.{minor}");
    }
}

#[tokio::test]
async fn a_context_that_another_has_replaced_is_ended_and_then_the_other() {
    let (client, world) = renewing(Vec::new()).await;
    root(&client).await;
    assert_eq!(ended(&world, 1).await, [[1; 16]]);
    root(&client).await;
    client.close().await.unwrap();
    assert_eq!(world.lock().unwrap().ended, [[1; 16], [2; 16]]);
}

#[tokio::test]
async fn the_end_of_a_pipeline_ends_its_context() {
    let (address, world) = server::start().await;
    let made = tokio::task::spawn_blocking(move || Pipeline::connect(address, 1, 2, &identity(), Box::new(Proving::new(1))));
    let pipeline = made.await.unwrap().unwrap();
    assert!(world.lock().unwrap().ended.is_empty());
    drop(pipeline);
    assert_eq!(ended(&world, 1).await, [[1; 16]]);
}
