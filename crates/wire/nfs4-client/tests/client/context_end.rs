use std::time::{Duration, Instant};

use vouch_nfs4::op::Op;
use vouch_nfs4_client::{Client, Config, Pipeline};

use crate::callback_security::{CallbackOnly, start_with_renewal};
use crate::server::Shared;
use crate::{identity, root, server};

async fn wait_for_destroyed(server_state: &Shared, count: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(60);
    while server_state.lock().unwrap().destroyed_contexts.len() < count && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server_state.lock().unwrap().destroyed_contexts.clone()
}

#[tokio::test]
async fn closed_client_destroys_its_context() {
    for minor in [0, 1] {
        let (address, server_state) = server::start().await;
        let client = Client::connect(Config::new(address, minor, identity(), CallbackOnly::new(1)))
            .await
            .unwrap();
        root(&client).await;
        assert!(server_state.lock().unwrap().destroyed_contexts.is_empty());
        client.close().await.unwrap();
        assert_eq!(server_state.lock().unwrap().destroyed_contexts, [[1; 16]], "4.{minor}");
    }
}

#[tokio::test]
async fn replaced_context_is_destroyed_before_its_successor() {
    let (client, server_state) = start_with_renewal(Vec::new()).await;
    root(&client).await;
    assert_eq!(wait_for_destroyed(&server_state, 1).await, [[1; 16]]);
    root(&client).await;
    client.close().await.unwrap();
    assert_eq!(server_state.lock().unwrap().destroyed_contexts, [[1; 16], [2; 16]]);
}

#[tokio::test]
async fn dropped_pipeline_destroys_session_client_and_context_though_replies_come_twice() {
    let (address, server_state) = server::start().await;
    server_state.lock().unwrap().repeats_replies = true;
    let made = tokio::task::spawn_blocking(move || {
        Pipeline::connect(address, 1, 2, &identity(), Box::new(CallbackOnly::new(1)))
    });
    let pipeline = made.await.unwrap().unwrap();
    assert!(server_state.lock().unwrap().destroyed_contexts.is_empty());
    tokio::task::spawn_blocking(move || drop(pipeline)).await.unwrap();
    assert_eq!(wait_for_destroyed(&server_state, 1).await, [[1; 16]]);
    assert_eq!(server_state.lock().unwrap().destroyed, [Op::DESTROY_SESSION, Op::DESTROY_CLIENTID]);
}
