"""etcd3gw, the client of the JSON gateway that OpenStack uses."""
import json
import sys

from etcd3gw.client import Etcd3Client
from etcd3gw import exceptions

host, port = sys.argv[1].split(":")
c = Etcd3Client(host=host, port=int(port), api_path="/v3/")


def say(what, value):
    print(f"{what}: {value!r}", flush=True)


def kv(pair):
    value, meta = pair
    return value, {k: meta[k] for k in ("key", "version") if k in meta}


say("put", c.put("gw/a", "1"))
say("put bytes", c.put("gw/b", b"\x00\xff"))
say("get", c.get("gw/a"))
say("get nothing", c.get("gw/none"))
say("metadata", [kv(p) for p in c.get("gw/b", metadata=True)])
say("prefix", [kv(p) for p in c.get_prefix("gw/")])
say("descending", [kv(p) for p in c.get_prefix("gw/", sort_order="descend", sort_target="key")])
say("create", c.create("gw/new", "x"))
say("create again", c.create("gw/new", "y"))
say("replace", c.replace("gw/new", "x", "z"))
say("replace wrong", c.replace("gw/new", "x", "q"))
say("after", c.get("gw/new"))
say("transaction", c.transaction({
    "compare": [{"key": "Z3cvYQ==", "result": "EQUAL", "target": "VALUE", "value": "MQ=="}],
    "success": [{"request_range": {"key": "Z3cvYg=="}}],
    "failure": [],
})["succeeded"])
lease = c.lease(ttl=60)
say("lease ttl", 0 < lease.ttl() <= 60)
say("lease refresh", lease.refresh())
say("put in lease", c.put("gw/leased", "x", lease=lease))
say("keys of lease", lease.keys())
say("revoke", lease.revoke())
say("after revoke", c.get("gw/leased"))
say("ttl after revoke", lease.ttl())
lock = c.lock("gwlock", ttl=30)
say("lock", lock.acquire())
say("held", lock.is_acquired())
say("unlock", lock.release())
say("held after", lock.is_acquired())
events, cancel = c.watch_prefix("gw/watched")
c.put("gw/watched/1", "one")
c.delete("gw/watched/1")
for _ in range(2):
    e = next(events)
    say("event", (e.get("type", "PUT"), e["kv"]["key"], e["kv"].get("value")))
cancel()
say("delete", c.delete("gw/a"))
say("delete nothing", c.delete("gw/a"))
say("delete prefix", c.delete_prefix("gw/"))
say("left", c.get_prefix("gw/"))
say("members", len(c.members()))
say("status keys", sorted(k for k in c.status() if k in ("header", "version", "leader", "raftTerm", "dbSize")))
for name, call in {
    "empty key": lambda: c.put("", "x"),
    "unknown lease": lambda: c.put("gw/x", "x", lease=type("L", (), {"id": 12345})()),
}.items():
    try:
        call()
        say(name, "no error")
    except exceptions.Etcd3Exception as e:
        say(name, (type(e).__name__, json.loads(e.detail_text)))
