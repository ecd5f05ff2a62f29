//! etcd-client.
use etcd_client::*;

fn say(what: &str, value: impl std::fmt::Debug) {
    println!("{what}: {value:?}");
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let endpoint = std::env::args().nth(1).expect("host:port");
    let mut c = Client::connect([endpoint], None).await?;
    c.put("rs/a", "1", None).await?;
    let p = c.put("rs/a", "2", Some(PutOptions::new().with_prev_key())).await?;
    say("previous", p.prev_key().map(|k| k.value_str().unwrap_or("").to_string()));
    let g = c.get("rs/a", None).await?;
    say("get", g.kvs().iter().map(|k| (k.key_str().unwrap_or(""), k.value_str().unwrap_or(""), k.version())).collect::<Vec<_>>());
    for i in 0..3 {
        c.put(format!("rs/l/{i}"), i.to_string(), None).await?;
    }
    let g = c.get("rs/l/", Some(GetOptions::new().with_prefix().with_sort(SortTarget::Key, SortOrder::Descend).with_limit(2))).await?;
    say("descending", (g.kvs().iter().map(|k| k.key_str().unwrap_or("").to_string()).collect::<Vec<_>>(), g.more(), g.count()));
    let t = Txn::new()
        .when(vec![Compare::value("rs/a", CompareOp::Equal, "2"), Compare::version("rs/none", CompareOp::Equal, 0)])
        .and_then(vec![TxnOp::put("rs/t", "yes", None), TxnOp::get("rs/t", None)])
        .or_else(vec![TxnOp::put("rs/t", "no", None)]);
    let t = c.txn(t).await?;
    say("transaction", (t.succeeded(), t.op_responses().len()));
    let lease = c.lease_grant(60, None).await?.id();
    c.put("rs/leased", "x", Some(PutOptions::new().with_lease(lease))).await?;
    let ttl = c.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await?;
    say("keys of lease", ttl.keys().len());
    c.lease_revoke(lease).await?;
    say("after revoke", c.get("rs/leased", None).await?.count());
    let mut events = c.watch("rs/w/", Some(WatchOptions::new().with_prefix().with_prev_key())).await?;
    c.put("rs/w/1", "one", None).await?;
    c.put("rs/w/1", "two", None).await?;
    c.delete("rs/w/1", None).await?;
    let mut seen = 0;
    while seen < 3 {
        let Some(r) = events.message().await? else { break };
        for e in r.events() {
            seen += 1;
            say("event", (e.event_type(), e.kv().map(|k| k.value_str().unwrap_or("").to_string()), e.prev_kv().map(|k| k.value_str().unwrap_or("").to_string())));
        }
    }
    let lock = c.lock("rslock", None).await?;
    say("lock", String::from_utf8_lossy(lock.key()).starts_with("rslock/"));
    c.unlock(lock.key()).await?;
    say("members", c.member_list().await?.members().len());
    say("version", c.status().await?.version());
    say("deleted", c.delete("rs/", Some(DeleteOptions::new().with_prefix())).await?.deleted());
    say("empty key", c.put("", "x", None).await.err().map(|e| e.to_string()));
    say("future", c.get("rs/a", Some(GetOptions::new().with_revision(999_999))).await.err().map(|e| e.to_string()));
    Ok(())
}
