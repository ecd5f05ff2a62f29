import io.etcd.jetcd.*;
import io.etcd.jetcd.kv.*;
import io.etcd.jetcd.op.*;
import io.etcd.jetcd.options.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

/** jetcd. */
public class Main {
    static ByteSequence b(String s) { return ByteSequence.from(s, StandardCharsets.UTF_8); }
    static void say(String what, Object value) { System.out.println(what + ": " + value); }
    static <T> T get(CompletableFuture<T> f) throws Exception { return f.get(10, TimeUnit.SECONDS); }

    public static void main(String[] args) throws Exception {
        try (Client c = Client.builder().endpoints("http://" + args[0]).build()) {
            KV kv = c.getKVClient();
            get(kv.put(b("jv/a"), b("1")));
            say("previous", get(kv.put(b("jv/a"), b("2"), PutOption.builder().withPrevKV().build())).getPrevKv().getValue());
            say("get", get(kv.get(b("jv/a"))).getKvs().get(0).getValue());
            say("get nothing", get(kv.get(b("jv/none"))).getCount());
            for (int i = 0; i < 3; i++) get(kv.put(b("jv/l/" + i), b("" + i)));
            GetOption prefix = GetOption.builder().isPrefix(true).withSortOrder(GetOption.SortOrder.DESCEND).withSortField(GetOption.SortTarget.KEY).build();
            say("descending", get(kv.get(b("jv/l/"), prefix)).getKvs().stream().map(k -> k.getKey().toString()).collect(Collectors.toList()));
            TxnResponse t = get(kv.txn().If(new Cmp(b("jv/a"), Cmp.Op.EQUAL, CmpTarget.value(b("2")))).Then(Op.put(b("jv/t"), b("yes"), PutOption.DEFAULT), Op.get(b("jv/t"), GetOption.DEFAULT)).Else(Op.put(b("jv/t"), b("no"), PutOption.DEFAULT)).commit());
            say("transaction", t.isSucceeded() + " " + t.getGetResponses().get(0).getKvs().get(0).getValue());
            long lease = get(c.getLeaseClient().grant(60)).getID();
            get(kv.put(b("jv/leased"), b("x"), PutOption.builder().withLeaseId(lease).build()));
            say("keys of lease", get(c.getLeaseClient().timeToLive(lease, LeaseOption.builder().withAttachedKeys().build())).getKeys());
            say("keep alive", get(c.getLeaseClient().keepAliveOnce(lease)).getTTL());
            get(c.getLeaseClient().revoke(lease));
            say("after revoke", get(kv.get(b("jv/leased"))).getCount());
            BlockingQueue<String> events = new LinkedBlockingQueue<>();
            CountDownLatch created = new CountDownLatch(1); // watch returns before the service has it
            try (Watch.Watcher w = c.getWatchClient().watch(b("jv/w/"), WatchOption.builder().isPrefix(true).withPrevKV(true).withCreateNotify(true).build(),
                    r -> { created.countDown(); r.getEvents().forEach(e -> events.add(e.getEventType() + " " + e.getKeyValue().getKey() + " " + e.getKeyValue().getValue() + " " + e.getPrevKV().getValue())); })) {
                say("created", created.await(10, TimeUnit.SECONDS));
                get(kv.put(b("jv/w/1"), b("one")));
                get(kv.put(b("jv/w/1"), b("two")));
                get(kv.delete(b("jv/w/1")));
                for (int i = 0; i < 3; i++) say("event", events.poll(10, TimeUnit.SECONDS));
            }
            long session = get(c.getLeaseClient().grant(30)).getID();
            ByteSequence held = get(c.getLockClient().lock(b("jvlock"), session)).getKey();
            say("lock", held.toString().startsWith("jvlock/"));
            get(c.getLockClient().unlock(held));
            var leader = get(c.getElectionClient().campaign(b("jvelection"), session, b("me"))).getLeader();
            say("leader", get(c.getElectionClient().leader(b("jvelection"))).getKv().getValue());
            get(c.getElectionClient().resign(leader));
            say("members", get(c.getClusterClient().listMember()).getMembers().size());
            say("version", get(c.getMaintenanceClient().statusMember("http://" + args[0])).getVersion());
            say("deleted", get(kv.delete(b("jv/"), DeleteOption.builder().isPrefix(true).build())).getDeleted());
            try { get(kv.put(b(""), b("x"))); say("empty key", "no error"); } catch (ExecutionException e) { say("empty key", e.getCause().getMessage()); }
            try { get(kv.get(b("jv/a"), GetOption.builder().withRevision(999999).build())); say("future", "no error"); } catch (ExecutionException e) { say("future", e.getCause().getMessage()); }
        }
        System.exit(0);
    }
}
