package host_test

import (
	"context"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/tcp"
)

// keeper is a state machine that keeps the bytes of one command in every few.
type keeper struct {
	every, want int
	applied     int
	kept        [][]byte
	done        chan struct{} // closed when want commands are applied
}

func (k *keeper) Apply(entries []statemachine.Entry) error {
	for _, e := range entries {
		if k.applied++; k.applied%k.every == 0 {
			k.kept = append(k.kept, e.Data)
		}
		if k.applied == k.want {
			close(k.done)
		}
	}
	return nil
}

// A state machine that keeps one command of 400 keeps that command in memory and at most as much again, but
// not the other commands of its batch, nor the frame that brought them, nor what was read from the log. This
// holds on a leader and on followers, and whether entries are applied from the cache or, as for a state
// machine that lags, from disk.
func TestKeptCommandsKeepNoOthers(t *testing.T) {
	const commands, every = 4_000, 400
	runKeepers(t, pipeline.Async{}, 8<<20, commands, 100, every) // for what a process allocates once, 150 KiB
	for _, p := range pipeline.All {
		for name, of := range map[string]struct {
			cache int64
			bytes int
		}{"cached": {8 << 20, 1 << 10}, "cold": {-1, 1 << 10}, "small": {8 << 20, 100}, "small and cold": {-1, 100}} {
			t.Run(p.Name()+"/"+name, func(t *testing.T) {
				before := liveBytes()
				keepers := runKeepers(t, p, of.cache, commands, of.bytes, every)
				want := int64(0)
				for _, k := range keepers {
					want += int64(len(k.kept) * of.bytes)
				}
				atMost := 2*want + 64<<10
				// A stopped timer keeps its host alive until the runtime sweeps its timers. Seen in CI: 0.5
				// MiB for a moment.
				ctx := deadline(t)
				pinned := liveBytes() - before
				for ; pinned > atMost && ctx.Err() == nil; pinned = liveBytes() - before {
				}
				runtime.KeepAlive(keepers)
				if pinned > atMost {
					t.Errorf("the state machines keep %d bytes, which keep %d in memory, want at most %d", want, pinned, atMost)
				}
			})
		}
	}
}

// runKeepers makes a cluster apply commands, and returns its state machines once all hosts are closed.
func runKeepers(t *testing.T, p pipeline.Pipeline, cache int64, commands, bytes, every int) (keepers []*keeper) {
	t.Helper()
	var transports []*tcp.Transport
	peers := map[uint64]string{}
	for id := uint64(1); id <= 3; id++ {
		tr, err := tcp.Listen(tcp.Options{ID: id, Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		transports, peers[id] = append(transports, tr), tr.Addr()
	}
	dir := scratch.Dir(t)
	var hosts []*host.Host
	for i, tr := range transports {
		id := uint64(i + 1)
		for peer, addr := range peers {
			tr.SetPeer(peer, addr)
		}
		k := &keeper{every: every, want: commands, done: make(chan struct{})}
		c := clusterConfig(id, dir, peers)
		c.Dir, c.SegmentBytes, c.LogCacheBytes = filepath.Join(dir, peers[id]), 16<<20, cache
		c.SingleEntries = true               // the commands of one entry share an array, on purpose (decision 0038)
		c.ElectionTimeout = 10 * time.Second // a busy machine must not depose the leader: its commands are in its hands
		h, err := openOne(c, k, host.WithTransport(tr), host.WithPipeline(p), host.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close(context.Background())
		hosts, keepers = append(hosts, h), append(keepers, k)
	}
	hosts[0].Group(theGroup).Campaign()
	ctx := deadline(t)
	leader, err := hosts[0].Group(theGroup).WaitLeader(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g := hosts[leader.ID-1].Group(theGroup)
	var clients sync.WaitGroup
	const atOnce = 200
	for range atOnce {
		clients.Go(func() {
			for range commands / atOnce {
				if _, err := g.Propose(ctx, make([]byte, bytes)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	for _, k := range keepers {
		select {
		case <-k.done:
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	return keepers
}

// liveBytes returns how many bytes are in use after a garbage collection.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // the first one may have been under way, and leaves pools half full
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return int64(live[0].Value.Uint64())
}
