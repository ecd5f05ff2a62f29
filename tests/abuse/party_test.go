package abuse_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport/tcp"
)

// Hosts on real directories and real sockets, which found theGroup and change its members.

// theGroup is the group of all tests.
const theGroup = 1

// party is one host of a test.
type party struct {
	*host.Host
	t    *testing.T
	id   uint64
	dir  string
	addr string
	said chan event.Event
	*journal
}

// newParty reserves an address; no host runs yet.
func newParty(t *testing.T, id uint64) *party {
	p := &party{t: t, id: id, dir: t.TempDir(), said: make(chan event.Event, 10_000)}
	listener, err := tcp.Listen(tcp.Options{ID: id})
	if err != nil {
		t.Fatal(err)
	}
	p.addr = listener.Addr()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return p
}

func parties(t *testing.T, n int) []*party {
	ps, taken := make([]*party, n), map[string]bool{}
	for i := range ps {
		for ps[i] == nil || taken[ps[i].addr] { // the machine may give a port again that is free now
			ps[i] = newParty(t, uint64(i+1))
		}
		taken[ps[i].addr] = true
	}
	return ps
}

// listOf returns a Config.Members of these hosts.
func listOf(ps ...*party) map[uint64]string {
	peers := map[uint64]string{}
	for _, p := range ps {
		peers[p.id] = p.addr
	}
	return peers
}

func (p *party) config(peers map[uint64]string) host.Config {
	return host.Config{
		ID: p.id, Dir: filepath.Join(p.dir, "data"), Members: peers, Listen: p.addr, SegmentBytes: 64 << 10,
		HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
	}
}

// openHost opens the host without a group.
func (p *party) openHost(peers map[uint64]string) {
	p.t.Helper()
	p.openConfig(p.config(peers))
}

// openConfig opens the host. It logs nothing.
func (p *party) openConfig(c host.Config) {
	p.t.Helper()
	h, err := host.Open(context.Background(), c, host.WithLogger(slog.New(slog.DiscardHandler)), host.WithEvents(func(e event.Event) {
		select {
		case p.said <- e:
		default:
		}
	}))
	if err != nil {
		p.t.Fatal(err)
	}
	p.Host = h
	p.t.Cleanup(func() { h.Close(context.Background()) })
}

func (p *party) openGroup(members ...uint64) *host.Group {
	p.t.Helper()
	p.journal = newJournal()
	g, err := p.OpenGroup(context.Background(), host.GroupConfig{ID: theGroup, Members: members}, p.journal)
	if err != nil {
		p.t.Fatal(err)
	}
	return g
}

// openJoining opens the host, with a group that waits to be added.
func (p *party) openJoining(peers map[uint64]string, founders ...uint64) {
	p.t.Helper()
	p.openHost(peers)
	p.journal = newJournal()
	if _, err := p.OpenGroup(context.Background(), host.GroupConfig{ID: theGroup, Members: founders, Joins: true}, p.journal); err != nil {
		p.t.Fatal(err)
	}
}

// close ends the host.
func (p *party) close() {
	p.t.Helper()
	if err := p.Close(context.Background()); err != nil {
		p.t.Error(err)
	}
}

// wipe stops the host and removes its directory.
func (p *party) wipe() {
	p.t.Helper()
	p.close()
	if err := os.RemoveAll(filepath.Join(p.dir, "data")); err != nil {
		p.t.Fatal(err)
	}
}

// founded returns a cluster in which all hosts know each other, as all have applied a first command.
func founded(t *testing.T, ps ...*party) {
	t.Helper()
	for _, p := range ps {
		p.openHost(listOf(ps...))
		p.openGroup()
	}
	write(t, ps, "first")
	for _, p := range ps {
		p.remembers(len(ps)-1, 1)
	}
}

// remembers waits until the host has recorded a number of peers, each in this life or a later one.
func (p *party) remembers(peers int, generation uint64) {
	p.t.Helper()
	ctx, again := deadline(p.t), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		var file struct{ Peers []struct{ Generation uint64 } }
		text, err := os.ReadFile(filepath.Join(p.dir, "data", "peers.json"))
		if err == nil {
			err = json.Unmarshal(text, &file)
		}
		n := 0
		for _, peer := range file.Peers {
			if peer.Generation >= generation {
				n++
			}
		}
		if n >= peers {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("host %d remembers %s, error %v; want %d peers of life %d", p.id, text, err, peers, generation)
		}
	}
}

// write returns when a command is committed and applied by all. Each host is asked in turn.
func write(t *testing.T, ps []*party, command string) {
	t.Helper()
	ctx := deadline(t)
	for i := 0; ; i++ {
		g := ps[i%len(ps)].Group(theGroup)
		r, err := g.Propose(ctx, []byte(command))
		switch {
		case err == nil:
			for _, p := range ps {
				p.waitForIndex(t, r.Index)
			}
			return
		case outcome.MayHaveCommitted(err) || ctx.Err() != nil:
			t.Fatal(err)
		}
		_, _ = g.WaitLeader(ctx) // then it is this host, another, or one that has died just now
		runtime.Gosched()
	}
}

// change plans and executes changes on a host.
func (p *party) change(changes ...host.MemberChange) {
	p.t.Helper()
	g := p.Group(theGroup)
	plan, err := g.Plan(changes...)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := g.Execute(deadline(p.t), plan); err != nil {
		p.t.Fatalf("%v\n%v", plan, err)
	}
}

// waitMembers waits until a host has put these voters and learners in force, and no plan is under way.
func (p *party) waitMembers(voters, learners []uint64) {
	p.t.Helper()
	p.waitEventAfter("the members", func() bool {
		m := p.Group(theGroup).Members()
		return slices.Equal(m.Voters, voters) && slices.Equal(m.Learners, learners) && m.Plan == ""
	})
}

// waitEvent waits for an event.
func (p *party) waitEvent(what string, is func(event.Event) bool) {
	p.t.Helper()
	var others []string
	for ctx := deadline(p.t); ; {
		select {
		case e := <-p.said:
			if is(e) {
				return
			}
			others = append(others, fmt.Sprintf("%T%+v", e, e))
		case <-ctx.Done():
			p.t.Fatalf("host %d has not reported %s; its last events: %q", p.id, what, others[max(0, len(others)-8):])
		}
	}
}

func (p *party) waitEventAfter(what string, is func() bool) {
	p.t.Helper()
	if is() {
		return
	}
	p.waitEvent(what, func(event.Event) bool { return is() })
}

// token makes a join token on a host.
func (p *party) token(o host.JoinTokenOptions) string {
	p.t.Helper()
	text, err := p.Group(theGroup).NewJoinToken(deadline(p.t), o)
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// journal is a state machine that knows how far it has come.
type journal struct {
	mu    sync.Mutex
	index uint64
	grown chan struct{} // closed and replaced at each apply
}

func newJournal() *journal { return &journal{grown: make(chan struct{})} }

// Apply receives committed commands.
func (j *journal) Apply(entries []statemachine.Entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range entries {
		if e.Index <= j.index {
			return fmt.Errorf("entry %d after %d", e.Index, j.index)
		}
		j.index = e.Index
	}
	close(j.grown)
	j.grown = make(chan struct{})
	return nil
}

// waitForIndex returns once everything through index is applied; the entry there must be a command.
func (j *journal) waitForIndex(t *testing.T, index uint64) {
	t.Helper()
	for ctx := deadline(t); ; {
		j.mu.Lock()
		have, grown := j.index, j.grown
		j.mu.Unlock()
		if have >= index {
			return
		}
		select {
		case <-grown:
		case <-ctx.Done():
			t.Fatalf("applied through %d, want %d", have, index)
		}
	}
}
