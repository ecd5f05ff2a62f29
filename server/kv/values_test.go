package kv

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/mvcc"
)

// A writer puts one of a few keys with each command. Readers beside it see the newest version of a key at
// the revision that they are told: never an older one, and never a later one.
func TestReadsBesideWrites(t *testing.T) {
	const keys, commands = 4, 3000
	onEach(t, func(t *testing.T, m *Machine) {
		var made [commands + 2]atomic.Int64 // the key that a revision has put, plus 1
		var ended atomic.Bool
		var readers sync.WaitGroup
		for reader := range 3 {
			readers.Go(func() {
				for n := reader; !ended.Load(); n++ {
					key := n % keys
					resp, err := m.Range(t.Context(), &pb.RangeRequest{Key: []byte{'k', byte(key)}})
					if err != nil {
						t.Error(err)
						return
					}
					newest := resp.Header.Revision
					for newest > 1 && made[newest].Load() != int64(key)+1 {
						newest--
					}
					switch {
					case newest <= 1 && len(resp.Kvs) > 0, newest > 1 && len(resp.Kvs) == 0:
						t.Errorf("at revision %d key %d has %v, and its newest version is of %d", resp.Header.Revision, key, resp.Kvs, newest)
						return
					case newest > 1 && (resp.Kvs[0].ModRevision != newest || string(resp.Kvs[0].Value) != strconv.FormatInt(newest, 10)):
						t.Errorf("at revision %d key %d is of revision %d, %q, want %d", resp.Header.Revision, key, resp.Kvs[0].ModRevision, resp.Kvs[0].Value, newest)
						return
					}
				}
			})
		}
		for i := range uint64(commands) {
			rev, key := int64(i)+2, int(i*i/3%keys)
			made[rev].Store(int64(key) + 1)
			value, err := command.Put(&pb.PutRequest{Key: []byte{'k', byte(key)}, Value: fmt.Append(nil, rev)})
			if err != nil {
				t.Fatal(err)
			}
			results := make([]command.Result, 1)
			if err := m.Apply([]millrace.Command[[]byte]{{Index: i + 1, Value: value}}, results); err != nil || results[0].Revision != rev {
				t.Fatalf("%+v, %v; want revision %d", results[0], err, rev)
			}
		}
		ended.Store(true)
		readers.Wait()
	})
}

// A key that was read is read again without a look into the engine, until it changes.
func TestAReadKeyIsKept(t *testing.T) {
	m := must(build(vfs.NewMem(), Options{Engine: "memory"}))
	defer m.Close()
	c := &counted{Engine: m.store.Load().Engine()}
	m.store.Store(must(mvcc.Open(c, mvcc.Empty, 1<<20, 1<<20, nil)))
	read := func(want int, what string) {
		t.Helper()
		*c = counted{Engine: c.Engine}
		if resp, err := m.Range(t.Context(), &pb.RangeRequest{Key: []byte("key 1")}); err != nil || len(resp.Kvs) != 1 {
			t.Fatal(resp, err)
		}
		if int(c.newest) != want {
			t.Errorf("%s: %d looks into the engine, want %d", what, c.newest, want)
		}
	}
	put := func(index uint64) {
		value, err := command.Put(&pb.PutRequest{Key: []byte("key 1"), Value: fmt.Append(nil, index)})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Apply([]millrace.Command[[]byte]{{Index: index, Value: value}}, make([]command.Result, 1)); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	read(1, "the first time")
	read(0, "again")
	put(2)
	read(1, "after a change")
	read(0, "again")
}
