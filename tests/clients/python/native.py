"""etcd3, the client over gRPC."""
import sys
import threading

import etcd3

host, port = sys.argv[1].split(":")
c = etcd3.client(host=host, port=int(port), timeout=10)


def say(what, value):
    print(f"{what}: {value!r}", flush=True)


say("put", c.put("py/a", "1").header.revision > 0)
say("previous", c.put("py/a", "2", prev_kv=True).prev_kv.value)
value, meta = c.get("py/a")
say("get", (value, meta.key, meta.version))
say("get nothing", c.get("py/none"))
for i in range(5):
    c.put(f"py/list/{i}", str(i))
say("prefix", [(m.key, v) for v, m in c.get_prefix("py/list/")])
say("keys only", [(m.key, v) for v, m in c.get_prefix("py/list/", keys_only=True)])
say("descending", [m.key for _, m in c.get_prefix("py/list/", sort_order="descend", sort_target="key")])
say("range", [m.key for _, m in c.get_range("py/list/1", "py/list/3")])
ok, answers = c.transaction(
    compare=[c.transactions.value("py/a") == "2", c.transactions.version("py/a") > 1, c.transactions.create("py/none") == 0],
    success=[c.transactions.put("py/t", "yes"), c.transactions.get("py/t"), c.transactions.delete("py/none")],
    failure=[c.transactions.put("py/t", "no")],
)
say("transaction", (ok, [[(v, m.key) for v, m in a] if isinstance(a, list) else type(a).__name__ for a in answers]))
say("put if absent", (c.put_if_not_exists("py/once", "1"), c.put_if_not_exists("py/once", "2")))
say("replace", (c.replace("py/a", "2", "3"), c.replace("py/a", "2", "4")))
lease = c.lease(60)
say("lease", (0 < lease.remaining_ttl <= 60, lease.granted_ttl))
c.put("py/leased", "x", lease=lease)
say("keys of lease", list(lease.keys))
say("refresh", [r.TTL for r in lease.refresh()])
lease.revoke()
say("after revoke", c.get("py/leased"))
got, all_in = [], threading.Event()


def on_event(response):
    for e in response.events:
        got.append((type(e).__name__, e.key, e.value))
    if len(got) >= 3:
        all_in.set()


watch = c.add_watch_prefix_callback("py/w/", on_event)
c.put("py/w/1", "a")
c.put("py/w/2", "b")
c.delete("py/w/1")
say("all events", all_in.wait(10))
c.cancel_watch(watch)
say("events", got)
lock = c.lock("pylock", ttl=30)
say("lock", (lock.acquire(), lock.is_acquired(), lock.release(), lock.is_acquired()))
say("delete", (c.delete("py/a"), c.delete("py/a")))
say("delete prefix", c.delete_prefix("py/").deleted)
say("members", [m.name for m in c.members])
say("status", c.status().version)
say("compact", c.compact(c.put("py/last", "1").header.revision))
say("defragment", c.defragment())
say("hash", c.hash() > 0)
try:
    c.put("", "x")
    say("empty key", "no error")
except Exception as e:  # what a program sees
    say("empty key", type(e).__name__)
try:
    c.get("py/a", sort_order="sideways")
    say("bad order", "no error")
except ValueError as e:
    say("bad order", str(e))
