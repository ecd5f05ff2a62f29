package etcdnode

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Each test shows one point of the contract (doc.go). Most use one goroutine: a node does its work within the
// call, so the result of a call is there when it returns. Those about waiting run in a synctest bubble, in
// which "it still waits" can be observed.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const electionTicks = 10

func testConfig(id uint64, s raft.Storage) *raft.Config {
	return &raft.Config{
		ID:              id,
		ElectionTick:    electionTicks,
		HeartbeatTick:   1,
		Seed:            1,
		Storage:         s,
		MaxSizePerMsg:   1 << 20,
		MaxInflightMsgs: 256,
	}
}

// An app is a consumer: it saves, applies and sends, all in memory. Only its own goroutine uses its fields.
type app struct {
	*Local
	storage *raft.MemoryStorage
	send    func(raftpb.Message)
	applied []string
}

// found starts one of the founding members 1 to n.
func found(t testing.TB, id uint64, n int, change func(*raft.Config)) *app {
	t.Helper()
	a := &app{storage: raft.NewMemoryStorage(), send: func(raftpb.Message) {}}
	cfg := testConfig(id, a.storage)
	if change != nil {
		change(cfg)
	}
	var peers []raft.Peer
	for i := range n {
		peers = append(peers, raft.Peer{ID: uint64(i) + 1})
	}
	local, err := Start(cfg, peers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(local.Stop)
	a.Local = local
	return a
}

// lead founds a cluster of one, which is elected and idle.
func lead(t testing.TB, change func(*raft.Config)) *app {
	t.Helper()
	a := found(t, 1, 1, change)
	a.drain()
	if err := a.Campaign(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.drain()
	if s := a.Status(); s.RaftState != raft.StateLeader {
		t.Fatalf("a lone node that campaigned is %v", s.RaftState)
	}
	return a
}

// poll receives a Ready if there is one.
func (a *app) poll() (raft.Ready, bool) {
	select {
	case rd := <-a.Ready():
		return rd, true
	default:
		return raft.Ready{}, false
	}
}

// drain does all work that there is.
func (a *app) drain() {
	for rd, ok := a.poll(); ok; rd, ok = a.poll() {
		a.handle(rd)
	}
}

// handle processes one Ready, in synchronous mode.
func (a *app) handle(rd raft.Ready) {
	a.save(rd.HardState, rd.Entries)
	for _, m := range rd.Messages {
		a.send(m)
	}
	a.apply(rd.CommittedEntries)
	a.Advance()
}

func (a *app) save(hard raftpb.HardState, entries []raftpb.Entry) {
	if !raft.IsEmptyHardState(hard) {
		_ = a.storage.SetHardState(hard)
	}
	if err := a.storage.Append(entries); err != nil {
		panic(err)
	}
}

func (a *app) apply(entries []raftpb.Entry) {
	for _, e := range entries {
		switch {
		case e.Type == raftpb.EntryConfChange:
			var cc raftpb.ConfChange
			if err := cc.Unmarshal(e.Data); err != nil {
				panic(err)
			}
			a.ApplyConfChange(cc)
		case e.Type == raftpb.EntryConfChangeV2:
			var cc raftpb.ConfChangeV2
			if err := cc.Unmarshal(e.Data); err != nil {
				panic(err)
			}
			a.ApplyConfChange(cc)
		case len(e.Data) > 0:
			a.applied = append(a.applied, string(e.Data))
		}
	}
}

// listener is a Logger that remembers warnings. A node never calls the other methods.
type listener struct {
	raft.Logger
	mu       sync.Mutex
	warnings []string
}

func (l *listener) Infof(string, ...any) {}

func (l *listener) Warningf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.warnings...)
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
