// Command golang uses each package of etcd's Go client, and writes a line for each thing that it sees.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
	"go.etcd.io/etcd/client/v3/naming/resolver"
	"go.etcd.io/etcd/client/v3/ordering"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// lives bounds the whole program.
const lives = time.Minute

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), lives)
	defer cancel()
	config := clientv3.Config{Endpoints: os.Args[1:], Logger: zap.NewNop(), DialTimeout: 5 * time.Second}
	c, err := clientv3.New(config)
	if err != nil {
		fmt.Println("connect:", err)
		os.Exit(1)
	}
	for _, part := range []struct {
		name string
		run  func(context.Context, *clientv3.Client) error
	}{
		{"namespace", useNamespace}, {"ordering", useOrdering}, {"mirror", useMirror}, {"naming", useNaming},
		{"mutex", useMutex}, {"election", useElection}, {"stm", useSTM}, {"leasing", useLeasing},
	} {
		fmt.Println("==", part.name)
		if err := part.run(ctx, c); err != nil {
			fmt.Println(part.name, "failed:", err)
		}
	}
	fmt.Println("== kubernetes")
	if err := useKubernetes(ctx, config); err != nil {
		fmt.Println("kubernetes failed:", err)
	}
	_ = c.Close()
}

// show writes keys without what differs between two clusters.
func show(what string, r *clientv3.GetResponse, err error) {
	if err != nil {
		fmt.Println(what, "failed:", err)
		return
	}
	var all []string
	for _, kv := range r.Kvs {
		all = append(all, fmt.Sprintf("%s=%s (version %d)", kv.Key, kv.Value, kv.Version))
	}
	fmt.Println(what, r.Count, r.More, strings.Join(all, ", "))
}

// useNamespace sees keys, events and leases below a prefix.
func useNamespace(ctx context.Context, c *clientv3.Client) error {
	kv, watcher := namespace.NewKV(c.KV, "ns/"), namespace.NewWatcher(c.Watcher, "ns/")
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	events := watcher.Watch(watchCtx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-events
	for _, key := range []string{"a", "b", "c"} {
		if _, err := kv.Put(ctx, key, "1"); err != nil {
			return err
		}
	}
	for n := 0; n < 3; {
		for _, e := range (<-events).Events {
			fmt.Println("event", e.Type, string(e.Kv.Key))
			n++
		}
	}
	r, err := kv.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithLimit(2))
	show("limit 2", r, err)
	r, err = c.Get(ctx, "ns/", clientv3.WithPrefix())
	show("without the namespace", r, err)
	t, err := kv.Txn(ctx).If(clientv3.Compare(clientv3.Value("a"), "=", "1")).Then(clientv3.OpDelete("b"), clientv3.OpGet("", clientv3.WithPrefix())).Commit()
	if err != nil {
		return err
	}
	fmt.Println("txn", t.Succeeded, t.Responses[0].GetResponseDeleteRange().Deleted, len(t.Responses[1].GetResponseRange().Kvs))
	return nil
}

// useOrdering reads through a client that refuses answers older than it has seen.
func useOrdering(ctx context.Context, c *clientv3.Client) error {
	kv := ordering.NewKV(c.KV, func(clientv3.Op, clientv3.OpResponse, int64) error { return errors.New("an older answer") })
	for i := range 3 {
		if _, err := kv.Put(ctx, "ordering", fmt.Sprint(i)); err != nil {
			return err
		}
		r, err := kv.Get(ctx, "ordering", clientv3.WithSerializable())
		show("serializable", r, err)
		r, err = kv.Get(ctx, "ordering")
		show("linearizable", r, err)
	}
	return nil
}

// useMirror copies a prefix, and then its changes.
func useMirror(ctx context.Context, c *clientv3.Client) error {
	for i := range 5 {
		if _, err := c.Put(ctx, fmt.Sprint("mirror/", i), "base"); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := mirror.NewSyncer(c, "mirror/", 0)
	base, failures := s.SyncBase(ctx)
	for r := range base {
		show("base", r, nil)
	}
	if err := <-failures; err != nil {
		return err
	}
	updates := s.SyncUpdates(ctx)
	if _, err := c.Put(ctx, "mirror/1", "update"); err != nil {
		return err
	}
	if _, err := c.Delete(ctx, "mirror/", clientv3.WithPrefix()); err != nil {
		return err
	}
	for n := 0; n < 6; {
		for _, e := range (<-updates).Events {
			fmt.Println("update", e.Type, string(e.Kv.Key), string(e.Kv.Value))
			n++
		}
	}
	return nil
}

// useNaming registers endpoints, watches them, and lets gRPC resolve one.
func useNaming(ctx context.Context, c *clientv3.Client) error {
	m, err := endpoints.NewManager(c, "services/kv")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	updates, err := m.NewWatchChannel(ctx)
	if err != nil {
		return err
	}
	if err := m.AddEndpoint(ctx, "services/kv/1", endpoints.Endpoint{Addr: os.Args[1], Metadata: "here"}); err != nil {
		return err
	}
	for _, u := range <-updates {
		fmt.Println("update", u.Op, u.Key, u.Endpoint.Metadata)
	}
	all, err := m.List(ctx)
	fmt.Println("list", len(all), all["services/kv/1"].Metadata, err)
	builder, err := resolver.NewBuilder(c)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("etcd:///services/kv", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	h, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fmt.Println("health of what was resolved", h.GetStatus(), err)
	if err := m.DeleteEndpoint(ctx, "services/kv/1"); err != nil {
		return err
	}
	for _, u := range <-updates {
		fmt.Println("update", u.Op, u.Key)
	}
	return nil
}

// useMutex lets two sessions take a lock in turn.
func useMutex(ctx context.Context, c *clientv3.Client) error {
	one, err := concurrency.NewSession(c, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	two, err := concurrency.NewSession(c, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	a, b := concurrency.NewMutex(one, "mutex"), concurrency.NewMutex(two, "mutex")
	fmt.Println("lock", a.Lock(ctx))
	fmt.Println("try", b.TryLock(ctx))
	locked := make(chan error)
	go func() { locked <- b.Lock(ctx) }()
	fmt.Println("unlock", a.Unlock(ctx))
	fmt.Println("lock of the other", <-locked)
	t, err := c.Txn(ctx).If(b.IsOwner()).Then(clientv3.OpPut("mutex-fenced", "yes")).Commit()
	fmt.Println("owner", t.Succeeded, err)
	fmt.Println("close", one.Close(), two.Close()) // the end of the session gives the lock up
	r, err := c.Get(ctx, "mutex/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	show("left", r, err)
	return nil
}

// useElection elects, observes, and resigns.
func useElection(ctx context.Context, c *clientv3.Client) error {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(30))
	if err != nil {
		return err
	}
	defer s.Close()
	e := concurrency.NewElection(s, "election")
	_, err = e.Leader(ctx)
	fmt.Println("no leader:", err)
	fmt.Println("campaign", e.Campaign(ctx, "first"))
	observing, stop := context.WithCancel(ctx)
	defer stop()
	seen := e.Observe(observing)
	r := <-seen
	fmt.Println("observed", string(r.Kvs[0].Value), r.Kvs[0].Version) // its key has the id of the lease
	fmt.Println("proclaim", e.Proclaim(ctx, "second"))
	r = <-seen
	fmt.Println("observed", string(r.Kvs[0].Value), r.Kvs[0].Version)
	fmt.Println("resign", e.Resign(ctx))
	_, err = e.Leader(ctx)
	fmt.Println("no leader:", err)
	return nil
}

// useSTM moves an amount between two keys in a transaction of memory.
func useSTM(ctx context.Context, c *clientv3.Client) error {
	for _, key := range []string{"stm/a", "stm/b"} {
		if _, err := c.Put(ctx, key, "5"); err != nil {
			return err
		}
	}
	for _, level := range []concurrency.Isolation{concurrency.SerializableSnapshot, concurrency.Serializable, concurrency.RepeatableReads, concurrency.ReadCommitted} {
		_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
			a, b := s.Get("stm/a"), s.Get("stm/b")
			s.Put("stm/a", b)
			s.Put("stm/b", a+"'")
			return nil
		}, concurrency.WithIsolation(level), concurrency.WithAbortContext(ctx))
		if err != nil {
			return err
		}
	}
	r, err := c.Get(ctx, "stm/", clientv3.WithPrefix())
	show("after four", r, err)
	return nil
}

// useLeasing reads from a cache that it owns, and gives it up when another writes.
func useLeasing(ctx context.Context, c *clientv3.Client) error {
	one, closeOne, err := leasing.NewKV(c, "leasing/")
	if err != nil {
		return err
	}
	defer closeOne()
	two, closeTwo, err := leasing.NewKV(c, "leasing/")
	if err != nil {
		return err
	}
	defer closeTwo()
	if _, err := one.Put(ctx, "cached", "1"); err != nil {
		return err
	}
	for range 2 {
		r, err := one.Get(ctx, "cached")
		show("owner", r, err)
	}
	if _, err := two.Put(ctx, "cached", "2"); err != nil {
		return err
	}
	r, err := one.Get(ctx, "cached")
	show("after the other has written", r, err)
	d, err := two.Delete(ctx, "cached")
	if err != nil {
		return err
	}
	fmt.Println("deleted", d.Deleted)
	r, err = one.Get(ctx, "cached")
	show("after the other has deleted", r, err)
	return nil
}

// useKubernetes makes the calls of an API server.
func useKubernetes(ctx context.Context, config clientv3.Config) error {
	k, err := kubernetes.New(config)
	if err != nil {
		return err
	}
	defer k.Close()
	var at int64
	for i, key := range []string{"/pods/a", "/pods/b", "/pods/c"} {
		r, err := k.OptimisticPut(ctx, key, []byte(fmt.Sprint(i)), 0, kubernetes.PutOptions{})
		if err != nil {
			return err
		}
		fmt.Println("create", key, r.Succeeded, r.Revision > at)
		at = r.Revision
	}
	again, err := k.OptimisticPut(ctx, "/pods/a", []byte("x"), 0, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil {
		return err
	}
	fmt.Println("create again", again.Succeeded, string(again.KV.GetValue()))
	page, err := k.List(ctx, "/pods/", kubernetes.ListOptions{Limit: 2})
	if err != nil {
		return err
	}
	rest, err := k.List(ctx, "/pods/", kubernetes.ListOptions{Limit: 2, Revision: page.Revision, Continue: string(page.Kvs[1].Key) + "\x00"})
	if err != nil {
		return err
	}
	fmt.Println("list", len(page.Kvs), page.Count, len(rest.Kvs), rest.Count)
	old, err := k.OptimisticDelete(ctx, "/pods/a", again.Revision+100, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil {
		return err
	}
	fmt.Println("delete at another revision", old.Succeeded, string(old.KV.GetValue()))
	gone, err := k.OptimisticDelete(ctx, "/pods/a", old.KV.ModRevision, kubernetes.DeleteOptions{})
	if err != nil {
		return err
	}
	n, err := k.Count(ctx, "/pods/", kubernetes.CountOptions{})
	fmt.Println("delete", gone.Succeeded, "left", n, err)
	one, err := k.Get(ctx, "/pods/a", kubernetes.GetOptions{})
	fmt.Println("get", one.KV == nil, err)
	return nil
}
