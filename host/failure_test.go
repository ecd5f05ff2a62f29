package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
	"go.uber.org/goleak"
)

// memoryCluster is three hosts on disks in memory and a network in the process.
type memoryCluster struct {
	cluster
	disks   []*crashfs.FS
	network *loopback.Network
}

func openMemoryCluster(t *testing.T, p pipeline.Pipeline, change ...func(*host.Config)) *memoryCluster {
	t.Helper()
	c, peers := &memoryCluster{network: loopback.NewNetwork()}, map[uint64]string{1: "", 2: "", 3: ""}
	for id := uint64(1); id <= 3; id++ {
		tr := c.network.Host(id)
		for peer := range peers {
			tr.SetPeer(peer, "")
		}
		config, disk, j := clusterConfig(id, "/data", peers), crashfs.New(), newJournal()
		config.SegmentBytes = 64 << 10
		for _, f := range change {
			f(&config)
		}
		h, err := openOne(config, j, host.WithTransport(tr), host.WithPipeline(p), host.WithFS(disk), host.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close(context.Background()) })
		c.hosts, c.journals, c.configs, c.disks = append(c.hosts, h), append(c.journals, j), append(c.configs, config), append(c.disks, disk)
	}
	c.hosts[0].Group(theGroup).Campaign()
	return c
}

// leader commits a command and returns which host led.
func (c *memoryCluster) leader(t *testing.T) int {
	t.Helper()
	for i := 0; ; i++ {
		if _, err := c.propose(deadline(t), fmt.Sprintf("who leads/%d", i)); err != nil {
			t.Fatal(err)
		}
		for k, h := range c.hosts {
			if h.Group(theGroup).Status().Role == event.RoleLeader {
				return k
			}
		}
	}
}

// A disk that fails stops its host's group with an error that names the cause. Clients that wait there are
// answered at once, and the other two hosts continue.
func TestDiskFailureStopsOneHost(t *testing.T) {
	faults := []struct {
		kind  crashfs.OpKind
		cause syscall.Errno
	}{{crashfs.OpSync, syscall.EIO}, {crashfs.OpWrite, syscall.EROFS}, {crashfs.OpPreallocate, syscall.EIO}}
	for _, p := range pipeline.All {
		for _, fault := range faults {
			for _, who := range []string{"leader", "follower"} {
				t.Run(fmt.Sprintf("%s/%v of the %s", p.Name(), fault.kind, who), func(t *testing.T) {
					defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
					c := openMemoryCluster(t, p)
					leads := c.leader(t)
					sick := leads
					if who == "follower" {
						sick = (leads + 1) % 3
					}
					c.disks[sick].SetHook(func(op crashfs.Op) error {
						if op.Kind == fault.kind {
							return fault.cause
						}
						return nil
					})
					failed := c.hosts[sick].Group(theGroup).Failed()
					var last outcome.Receipt
					for i := 0; !closed(failed); i++ {
						r, err := c.propose(deadline(t), fmt.Sprintf("%d/%s", i, bytes.Repeat([]byte("x"), 4<<10)))
						switch {
						case err == nil:
							last = r
						case !outcome.MayHaveCommitted(err) && !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrDropped):
							t.Fatal(err)
						case errors.Is(err, context.DeadlineExceeded):
							t.Fatalf("no host answered: %v", err)
						}
					}
					err := c.hosts[sick].Group(theGroup).Err()
					var log *wal.FailedError
					if !errors.Is(err, fault.cause) || !errors.Is(err, wal.ErrDiskFailed) || !errors.As(err, &log) {
						t.Errorf("the group stopped with %v", err)
					}
					if _, err := c.hosts[sick].Group(theGroup).Propose(deadline(t), []byte("x")); !errors.Is(err, outcome.ErrStopped) || !errors.Is(err, fault.cause) {
						t.Errorf("the failed host answers %v", err)
					}
					healthy := cluster{hosts: slices.Delete(slices.Clone(c.hosts), sick, sick+1), journals: slices.Delete(slices.Clone(c.journals), sick, sick+1)}
					r, err := healthy.propose(deadline(t), "the others go on")
					if err != nil {
						t.Fatal(err)
					}
					for _, j := range healthy.journals {
						j.waitForIndex(t, max(r.Index, last.Index))
					}
					healthy.close(t)
					if a, b := healthy.journals[0], healthy.journals[1]; !slices.Equal(a.applied, b.applied) {
						t.Errorf("the healthy hosts applied %d and %d commands, not the same", len(a.applied), len(b.applied))
					}
					if err := c.hosts[sick].Close(context.Background()); err != nil && !errors.Is(err, wal.ErrDiskFailed) {
						t.Errorf("closing the failed host: %v", err)
					}
				})
			}
		}
	}
}

// A full disk is not a failed one: its host falls behind, promises nothing that it cannot keep, and catches
// up by itself when there is space again.
func TestFullDiskHoldsOneHostBack(t *testing.T) {
	for _, who := range []string{"leader", "follower"} {
		t.Run(who, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			c := openMemoryCluster(t, pipeline.Async{})
			sick := c.leader(t)
			if who == "follower" {
				sick = (sick + 1) % 3
			}
			refused := make(chan struct{})
			var once sync.Once
			c.disks[sick].SetHook(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpPreallocate {
					once.Do(func() { close(refused) })
					return syscall.ENOSPC
				}
				return nil
			})
			var last outcome.Receipt
			for i := 0; i < 20 || !closed(refused); i++ {
				r, err := c.propose(deadline(t), fmt.Sprintf("%d/%s", i, bytes.Repeat([]byte("x"), 8<<10)))
				if err != nil {
					t.Fatal(err)
				}
				last = r
			}
			if err := c.hosts[sick].Group(theGroup).Err(); err != nil {
				t.Errorf("the group stopped: %v", err)
			}
			c.disks[sick].SetHook(nil)
			for _, j := range c.journals {
				j.waitForIndex(t, last.Index)
			}
			c.close(t)
		})
	}
}

// A quorum need not include the leader (thesis §10.2.1): while its own disk hangs, clients are answered when
// both followers hold their commands durably, and the leader applies them once its disk has caught up.
func TestClientsAreAnsweredBeforeTheLeadersOwnDisk(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := openMemoryCluster(t, pipeline.Async{})
	leader := c.leader(t)
	release := make(chan struct{})
	resume := sync.OnceFunc(func() { close(release) })
	t.Cleanup(resume) // before the hosts close
	c.disks[leader].SetHook(func(op crashfs.Op) error {
		// Only the log's files hang: both followers are needed, and one that the leader meets only now must
		// get into peers.json.
		if op.Kind == crashfs.OpSync && strings.HasSuffix(op.Name, ".wal") {
			<-release
		}
		return nil
	})
	g := c.hosts[leader].Group(theGroup)
	var last outcome.Receipt
	for i := range 3 {
		var err error
		if last, err = g.Propose(deadline(t), fmt.Appendf(nil, "command %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Status(); s.Durable >= last.Index || s.Applied >= last.Index {
		t.Errorf("acknowledged index %d with the leader's disk stalled, yet it is durable or applied there: %+v", last.Index, s)
	}
	resume()
	c.journals[leader].waitForIndex(t, last.Index)
	c.close(t)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Hosts are closed, each twice and all at once, while clients propose. Every client is answered, nothing is
// left running, and every acknowledged command is there afterwards.
func TestCloseWhileProposing(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			dir := scratch.Dir(t)
			c := openCluster(t, 3, dir, p)
			if _, err := c.propose(deadline(t), "first"); err != nil {
				t.Fatal(err)
			}
			const clients = 24
			var acked sync.Map
			var clientsDone, closers sync.WaitGroup
			enough := make(chan struct{})
			var count atomic.Int32
			for k := range clients {
				clientsDone.Go(func() {
					g := c.hosts[k%3].Group(theGroup)
					for i := 0; ; i++ {
						command := fmt.Sprintf("%d/%d", k, i)
						r, err := g.Propose(context.Background(), []byte(command)) // only an answer ends this wait
						switch {
						case err == nil:
							acked.Store(command, r.Index)
							if count.Add(1) == 200 {
								close(enough)
							}
						case errors.Is(err, outcome.ErrStopped): // ErrIndeterminate wraps it, too
							return
						}
					}
				})
			}
			<-enough
			for range 2 {
				for _, h := range c.hosts {
					closers.Go(func() {
						if err := h.Close(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
			}
			closers.Wait()
			clientsDone.Wait()

			again := openCluster(t, 3, dir, p)
			r, err := again.propose(deadline(t), "last")
			if err != nil {
				t.Fatal(err)
			}
			for i, j := range again.journals {
				j.waitForIndex(t, r.Index)
				acked.Range(func(command, index any) bool {
					if j.at[command.(string)] != index.(uint64) {
						t.Errorf("host %d has %q at %d, acknowledged at %d", i+1, command, j.at[command.(string)], index)
					}
					return true
				})
			}
			again.close(t)
		})
	}
}

// Waiters are reused. However clients give up, a receipt always belongs to the client's command.
func TestReceiptBelongsToItsCommand(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := openMemoryCluster(t, pipeline.Async{})
	g := c.hosts[c.leader(t)].Group(theGroup)
	var mu sync.Mutex
	receipts := map[string]uint64{}
	var clients sync.WaitGroup
	for k := range 16 {
		clients.Go(func() {
			for i := range 200 {
				command := fmt.Sprintf("%d/%d", k, i)
				ctx, cancel := context.WithCancel(context.Background())
				p, err := g.Submit([]byte(command))
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				if rand.IntN(2) == 0 {
					go cancel() // now, soon, or too late
				}
				r, err := p.Wait(ctx)
				cancel()
				switch {
				case err == nil:
					mu.Lock()
					receipts[command] = r.Index
					mu.Unlock()
				case !outcome.MayHaveCommitted(err) || !errors.Is(err, context.Canceled):
					if !errors.Is(err, outcome.ErrNotLeader) && !errors.Is(err, outcome.ErrDropped) { // deposed on a slow machine
						t.Error(err)
					}
				}
			}
		})
	}
	clients.Wait()
	r, err := c.propose(deadline(t), "last")
	if err != nil {
		t.Fatal(err)
	}
	c.journals[0].waitForIndex(t, r.Index)
	c.close(t)
	for command, index := range receipts {
		if at := c.journals[0].at[command]; at != index {
			t.Errorf("%q has a receipt for index %d and is at %d", command, index, at)
		}
	}
	if len(receipts) == 0 {
		t.Error("no client got a receipt")
	}
}

func soloConfig(t *testing.T) host.Config {
	return host.Config{
		ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}, SegmentBytes: 64 << 10,
	}
}

// A directory serves one host at a time. A second host on it does not disturb the first.
func TestDirectoryIsLocked(t *testing.T) {
	config, j := soloConfig(t), newJournal()
	h, err := openOne(config, j, host.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openOne(config, newJournal(), host.WithLogger(quiet)); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("the second host: %v", err)
	}
	h.Group(theGroup).Campaign()
	c := &cluster{hosts: []*host.Host{h}}
	if _, err := c.propose(deadline(t), "undisturbed"); err != nil {
		t.Error(err)
	}
	c.close(t)
	again, err := openOne(config, newJournal(), host.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// An address in use is an error that says so, and the directory stays free.
func TestPortInUse(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := soloConfig(t)
	config.Listen = taken.Addr().String()
	if _, err := openOne(config, newJournal(), host.WithLogger(quiet)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v", err)
	}
	config.Listen = ""
	h, err := openOne(config, newJournal(), host.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A directory of another host that has voted is refused and not changed.
func TestDirectoryOfAnotherHost(t *testing.T) {
	config := soloConfig(t)
	open := func(c host.Config) error {
		h, err := openOne(c, newJournal(), host.WithLogger(quiet))
		if err != nil {
			return err
		}
		h.Group(theGroup).Campaign()
		if _, err := h.Group(theGroup).WaitLeader(deadline(t)); err != nil {
			t.Error(err)
		}
		return h.Close(context.Background())
	}
	if err := open(config); err != nil {
		t.Fatal(err)
	}
	other := config
	other.ID, other.Members = 2, map[uint64]string{2: "127.0.0.1:0"}
	if err := open(other); err == nil {
		t.Error("host 2 opened the directory of host 1")
	}
	if err := open(config); err != nil {
		t.Error(err)
	}
}

// A host that counted writes before they were durable, and lost power, may have forgotten what it promised.
// A group without other members, which could say what is missing, is not opened, not even at the next try.
// The death of its process is no loss of power.
func TestAmnesiaIsNotStarted(t *testing.T) {
	for _, c := range []struct {
		loss crashfs.Loss
		want error
	}{{crashfs.LoseNothing, nil}, {crashfs.LoseAll, outcome.ErrAmnesia}} {
		disk := crashfs.New()
		open := func() (*host.Host, error) {
			config := clusterConfig(1, "/data", map[uint64]string{1: ""})
			config.Durability = wal.ModeUnsafeOS
			return openOne(config, newJournal(), host.WithTransport(loopback.NewNetwork().Host(1)), host.WithFS(disk.Mount()), host.WithLogger(quiet))
		}
		h, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Group(theGroup).WaitLeader(deadline(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Group(theGroup).Propose(deadline(t), []byte("promised")); err != nil {
			t.Fatal(err)
		}
		disk.Crash(c.loss, nil)
		h.Close(context.Background()) // of a process that is dead: what it says does not matter
		for try := range 2 {
			h, err := open()
			if !errors.Is(err, c.want) {
				t.Errorf("try %d after %v: have %v, want %v", try, c.loss, err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), "millrace wal verify /data/1/log") {
				t.Errorf("%v does not name the command that says what can be done", err)
			}
			if err == nil {
				h.Close(context.Background())
			}
		}
		o := wal.RepairOptions{InspectOptions: wal.InspectOptions{FS: disk.Mount(), Dir: "/data/1/log"}, Write: true, AcceptLoss: true}
		if r, err := wal.RepairLog(t.Context(), o); err != nil || r.Fence.Amnesia {
			t.Fatalf("the loss is not accepted: %+v, %v", r, err)
		}
		h, err = open()
		if err != nil {
			t.Fatalf("after the loss was accepted: %v", err)
		}
		h.Close(context.Background())
	}
}
