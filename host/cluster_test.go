package host_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/tcp"
	"go.uber.org/goleak"
)

// journal is a state machine that records everything.
type journal struct {
	mu      sync.Mutex
	applied []string
	at      map[string]uint64 // command → index
	places  map[string]outcome.Position
	index   uint64
	last    outcome.Position
	hash    uint32
	grown   chan struct{} // closed and replaced at each apply
}

func newJournal() *journal {
	return &journal{at: map[string]uint64{}, places: map[string]outcome.Position{}, grown: make(chan struct{})}
}

func (j *journal) Apply(entries []statemachine.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		if at := e.Position(); at.Compare(j.last) <= 0 {
			return fmt.Errorf("entry %v after %v", at, j.last)
		}
		j.index, j.last = e.Index, e.Position()
		j.places[string(e.Data)] = e.Position()
		j.applied = append(j.applied, string(e.Data))
		j.at[string(e.Data)] = e.Index
		j.hash = crc32.Update(j.hash, crc32.IEEETable, binary.BigEndian.AppendUint64(nil, e.Index<<16|uint64(e.Pos)))
		j.hash = crc32.Update(j.hash, crc32.IEEETable, e.Data)
	}
	close(j.grown)
	j.grown = make(chan struct{})
	return nil
}

// waitFor returns once n commands are applied.
func (j *journal) waitFor(t *testing.T, n int) {
	t.Helper()
	j.waitUntil(t, func() error {
		if have := len(j.applied); have < n {
			return fmt.Errorf("%d commands applied, want %d", have, n)
		}
		return nil
	})
}

// waitForIndex returns once everything through index is applied; the entry there must be a command.
func (j *journal) waitForIndex(t *testing.T, index uint64) {
	t.Helper()
	j.waitUntil(t, func() error {
		if j.index < index {
			return fmt.Errorf("applied through %d, want %d", j.index, index)
		}
		return nil
	})
}

func (j *journal) waitUntil(t *testing.T, missing func() error) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		j.mu.Lock()
		err, grown := missing(), j.grown
		j.mu.Unlock()
		if err == nil {
			return
		}
		select {
		case <-grown:
		case <-deadline:
			t.Fatal(err)
		}
	}
}

// theGroup is the group of the tests that need only one.
const theGroup = 1

// openOne opens a host with one group, theGroup.
func openOne(c host.Config, m statemachine.Machine, options ...host.Option) (*host.Host, error) {
	h, err := host.Open(context.Background(), c, options...)
	if err != nil {
		return nil, err
	}
	if _, err := h.OpenGroup(context.Background(), host.GroupConfig{ID: theGroup}, m); err != nil {
		return nil, errors.Join(err, h.Close(context.Background()))
	}
	return h, nil
}

type cluster struct {
	hosts    []*host.Host
	journals []*journal
	configs  []host.Config
}

// openCluster starts n hosts on TCP over the loopback interface, with directories below dir.
func openCluster(t *testing.T, n int, dir string, p pipeline.Pipeline) *cluster {
	t.Helper()
	c, err := startCluster(n, dir, p)
	t.Cleanup(func() {
		for _, h := range c.hosts {
			h.Close(context.Background())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var quiet = slog.New(slog.DiscardHandler)

func startCluster(n int, dir string, p pipeline.Pipeline, change ...func(*host.Config)) (*cluster, error) {
	return startClusterWith(n, dir, host.WithPipeline(p), change...)
}

func startClusterWith(n int, dir string, o host.Option, change ...func(*host.Config)) (*cluster, error) {
	c := &cluster{}
	transports := make([]*tcp.Transport, n)
	peers := map[uint64]string{}
	for i := range n {
		tr, err := tcp.Listen(tcp.Options{ID: uint64(i + 1), Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			return c, err
		}
		transports[i] = tr
		peers[uint64(i+1)] = tr.Addr()
	}
	for i, tr := range transports {
		for id, addr := range peers {
			if id != uint64(i+1) {
				tr.SetPeer(id, addr)
			}
		}
		config := clusterConfig(uint64(i+1), dir, peers)
		for _, f := range change {
			f(&config)
		}
		j := newJournal()
		h, err := openOne(config, j, host.WithTransport(tr), o, host.WithLogger(quiet))
		if err != nil {
			return c, err
		}
		c.hosts, c.journals, c.configs = append(c.hosts, h), append(c.journals, j), append(c.configs, config)
	}
	c.hosts[0].Group(theGroup).Campaign()
	return c, nil
}

func clusterConfig(id uint64, dir string, peers map[uint64]string) host.Config {
	return host.Config{
		ID:                id,
		Dir:               filepath.Join(dir, fmt.Sprint(id)),
		Members:           peers,
		HeartbeatInterval: 20 * time.Millisecond,
		ElectionTimeout:   200 * time.Millisecond,
		SegmentBytes:      1 << 20,
	}
}

// propose proposes to the leader, and retries until the command is committed or may be. On a busy machine the
// leader may lose its leadership in between. Hosts in without are not asked: they may know no leader for
// long.
func (c *cluster) propose(ctx context.Context, command string, without ...int) (outcome.Receipt, error) {
	for i := 0; ; i++ {
		if slices.Contains(without, i%len(c.hosts)) {
			continue
		}
		g := c.hosts[i%len(c.hosts)].Group(theGroup)
		r, err := g.Propose(ctx, []byte(command))
		if err == nil || outcome.MayHaveCommitted(err) || ctx.Err() != nil {
			return r, err
		}
		_, _ = g.WaitLeader(ctx) // then it is this host, another, or one that has died just now
		runtime.Gosched()
	}
}

func (c *cluster) close(t *testing.T) {
	t.Helper()
	for _, h := range c.hosts {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Every pipeline, one to five voters: every acknowledged command is applied on every host, once, in the same
// order, and again after all hosts have restarted.
func TestClusterReplicatesAndRestarts(t *testing.T) {
	for _, p := range pipeline.All {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", p.Name(), n), func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				dir := scratch.Dir(t)
				const commands, clients = 200, 8
				c := openCluster(t, n, dir, p)
				ctx := deadline(t)
				var wg sync.WaitGroup
				for k := range clients {
					wg.Go(func() {
						for i := range commands / clients {
							if _, err := c.propose(ctx, fmt.Sprintf("%d/%d", k, i)); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				for _, j := range c.journals {
					j.waitFor(t, commands)
				}
				c.close(t)
				checkSame(t, c.journals, commands)

				again := openCluster(t, n, dir, p)
				if _, err := again.propose(ctx, "after"); err != nil {
					t.Fatal(err)
				}
				for _, j := range again.journals {
					j.waitFor(t, commands+1)
				}
				again.close(t)
				checkSame(t, again.journals, commands+1)
			})
		}
	}
}

func checkSame(t *testing.T, journals []*journal, commands int) {
	t.Helper()
	for i, j := range journals {
		seen := map[string]bool{}
		for _, command := range j.applied {
			if seen[command] {
				t.Fatalf("host %d applied %q twice", i+1, command)
			}
			seen[command] = true
		}
		if len(j.applied) != commands || j.hash != journals[0].hash {
			t.Fatalf("host %d applied %d commands with hash %x, want %d with %x", i+1, len(j.applied), j.hash, commands, journals[0].hash)
		}
	}
}

// With several commands in an entry each client gets the place of its command. Every host applies the
// commands in the order of their places, and does so again after all have restarted. A host that does not
// say that it reads such entries keeps the others from writing them.
func TestClusterWithBatchEntries(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			const clients, each = 64, 8
			c, err := startCluster(3, scratch.Dir(t), pipeline.Async{}, func(c *host.Config) { c.SingleEntries = !all && c.ID == 3 })
			t.Cleanup(func() { c.close(t) })
			if err != nil {
				t.Fatal(err)
			}
			ctx := deadline(t)
			receipts := make([]outcome.Receipt, clients*each)
			var wg sync.WaitGroup
			for k := range clients {
				wg.Go(func() {
					for i := range each {
						r, err := c.propose(ctx, fmt.Sprint(k*each+i))
						if receipts[k*each+i] = r; err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			packed := 0
			for _, j := range c.journals {
				j.waitFor(t, clients*each)
				if j.hash != c.journals[0].hash || len(j.applied) != clients*each {
					t.Fatalf("a host has applied %d commands, another state than the first", len(j.applied))
				}
			}
			for i, r := range receipts {
				if at := (outcome.Position{Index: r.Index, Pos: r.Pos}); c.journals[0].places[fmt.Sprint(i)] != at {
					t.Fatalf("the receipt of command %d says %v, and it was applied at %v", i, at, c.journals[0].places[fmt.Sprint(i)])
				}
				if r.Pos > 0 {
					packed++
				}
			}
			if packed > 0 != all {
				t.Errorf("%d commands share an entry with one before them", packed)
			}
		})
	}
}
