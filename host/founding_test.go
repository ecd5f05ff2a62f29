package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/tcp"
	"go.uber.org/goleak"
)

// Who may count: hosts on real directories and real sockets that are wiped, run twice, founded differently,
// or pointed at another cluster. The logs of both ends are checked for every refusal.

// party is one host of such a test.
type party struct {
	*host.Host
	t     *testing.T
	id    uint64
	dir   string
	addr  string
	lines chan string // what it logs as a warning
	said  chan event.Event
	*journal
}

// newParty reserves an address; no host runs yet.
func newParty(t *testing.T, id uint64) *party {
	p := &party{t: t, id: id, dir: scratch.Dir(t), lines: make(chan string, 10_000), said: make(chan event.Event, 10_000)}
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

func (p *party) open(peers map[uint64]string) {
	p.t.Helper()
	p.openHost(peers)
	p.openGroup()
}

// openHost opens the host without a group.
func (p *party) openHost(peers map[uint64]string) {
	p.t.Helper()
	p.openConfig(p.config(peers))
}

func (p *party) openConfig(c host.Config) {
	p.t.Helper()
	h, err := host.Open(context.Background(), c,
		host.WithLogger(slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		host.WithEvents(func(e event.Event) {
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

func hostRefusal(id uint64, words ...string) func(event.Event) bool {
	return func(e event.Event) bool {
		r, is := e.(event.HostRefused)
		return is && r.Host == id && containsAll(r.Err.Error(), words)
	}
}

// waitUnfounded waits until the group of this host says that it is not founded because of exactly these
// hosts, which it has not heard.
func (p *party) waitUnfounded(unmet ...uint64) {
	p.t.Helper()
	ctx, again := deadline(p.t), time.NewTicker(5*time.Millisecond)
	defer again.Stop()
	for {
		_, err := p.Group(theGroup).Propose(ctx, []byte("too early"))
		var missing *outcome.NotFoundedError
		if !errors.As(err, &missing) && !errors.Is(err, outcome.ErrNotLeader) {
			p.t.Fatalf("host %d answers a command with %v", p.id, err)
		}
		if missing != nil && slices.Equal(missing.Unmet, unmet) {
			if !strings.Contains(err.Error(), fmt.Sprintf("host %d was not heard", unmet[0])) || !strings.Contains(err.Error(), "no command was ever taken") {
				p.t.Errorf("host %d says %q", p.id, err)
			}
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			p.t.Fatalf("host %d says %v, want that hosts %v were not heard", p.id, err, unmet)
		}
	}
}

// waitStopped waits until the group of this host has stopped with an error that has these words.
func (p *party) waitStopped(words ...string) {
	p.t.Helper()
	g := p.Group(theGroup)
	select {
	case <-g.Failed():
	case <-deadline(p.t).Done():
		p.t.Fatalf("the group of host %d has not stopped", p.id)
	}
	if err := g.Err(); !containsAll(err.Error(), words) {
		p.t.Errorf("the group of host %d has stopped with %v, want %q", p.id, err, words)
	}
}

// Write receives a line of the log.
func (p *party) Write(line []byte) (int, error) {
	select {
	case p.lines <- string(line):
	default:
	}
	return len(line), nil
}

func (p *party) close() {
	p.t.Helper()
	if err := p.Close(context.Background()); err != nil {
		p.t.Error(err)
	}
}

// waitRefusal waits until the host's log has a line with all these words. If the host was accepted instead,
// the suspect follows a leader first.
func (p *party) waitRefusal(suspect *party, words ...string) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(deadline(p.t))
	defer cancel()
	believed := make(chan uint64, 1)
	g := suspect.Group(theGroup) // read here: the suspect may be opened again before the goroutine below runs
	go func() {
		if leader, err := g.WaitLeader(ctx); err == nil {
			believed <- leader.ID
		}
	}()
	for {
		select {
		case line := <-p.lines:
			if containsAll(line, words) {
				return
			}
		case leader := <-believed:
			p.t.Fatalf("host %d follows host %d, and host %d has not said %q", suspect.id, leader, p.id, words)
		case <-ctx.Done():
			p.t.Fatalf("host %d has not said %q", p.id, words)
		}
	}
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// founded returns a cluster in which all hosts know each other, as all have applied a first command.
func founded(t *testing.T, ps ...*party) {
	t.Helper()
	for _, p := range ps {
		p.open(listOf(ps...))
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

// write returns when a command is committed and applied by all.
func write(t *testing.T, ps []*party, command string) {
	t.Helper()
	c := &cluster{}
	for _, p := range ps {
		c.hosts = append(c.hosts, p.Host)
	}
	r, err := c.propose(deadline(t), command)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		p.waitForIndex(t, r.Index)
	}
}

// A wiped host that comes back under its old id has forgotten its votes. Hosts that knew its directory refuse
// it, and both ends say so. The others continue.
func TestWipedDirectoryIsRefused(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ps := parties(t, 3)
	founded(t, ps...)
	ps[1].close()
	if err := os.RemoveAll(filepath.Join(ps[1].dir, "data")); err != nil {
		t.Fatal(err)
	}
	ps[1].open(listOf(ps...))
	sentence := []string{"host 2", "another directory", "restore the directory"}
	ps[0].waitRefusal(ps[1], sentence...)
	ps[2].waitRefusal(ps[1], sentence...)
	ps[1].waitRefusal(ps[1], sentence...)
	ps[1].waitStopped(append(sentence, "a majority of its members, refuse the directory")...)
	write(t, []*party{ps[0], ps[2]}, "without the wiped host")
	for _, p := range ps {
		p.close()
	}
}

// The records of peers outlive their processes: the wiped host is refused even after a restart of all others.
func TestWipedDirectoryIsRefusedAfterRestart(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	for _, p := range ps {
		p.close()
	}
	if err := os.RemoveAll(filepath.Join(ps[1].dir, "data")); err != nil {
		t.Fatal(err)
	}
	ps[1].open(listOf(ps...))
	ps[2].open(listOf(ps...))
	ps[2].waitRefusal(ps[1], "host 2", "another directory")
	ps[1].waitRefusal(ps[1], "host 2", "another directory")
}

// Host 3 was never up. Hosts 1 and 2 take no command and elect no leader; they stop, host 2 is wiped and
// meets host 3, which has heard of neither. They elect no leader either. When host 1 is back it refuses the
// wiped one, and all three say what is missing. The way out that they name works: empty directories on all
// hosts.
func TestWipedDirectoryMeetsOneThatNeverHeardOfIt(t *testing.T) {
	ps := parties(t, 3)
	for _, p := range ps[:2] {
		p.open(listOf(ps...))
	}
	ps[0].waitUnfounded(3)
	ps[1].waitUnfounded(3)
	ps[0].remembers(1, 1)
	for _, p := range ps[:2] {
		p.close()
	}
	wipe(t, ps[1])
	ps[1].open(listOf(ps...))
	ps[2].open(listOf(ps...))
	ps[1].waitUnfounded(1)
	ps[2].waitUnfounded(1)
	ps[0].open(listOf(ps...))
	ps[0].waitEvent("that it refuses host 2", hostRefusal(2, "another directory", "restore the directory"))
	ps[0].waitRefusal(ps[1], "host 2", "another directory")
	ps[1].waitRefusal(ps[1], "host 2", "another directory")
	ps[0].waitUnfounded(2)
	ps[1].waitUnfounded(1)
	for _, p := range ps {
		if s := p.Group(theGroup).Status(); s.Leader != 0 || s.LastIndex > 0 {
			t.Errorf("host %d follows or leads: %+v", p.id, s)
		}
		p.close()
		wipe(t, p)
	}
	founded(t, ps...)
}

func wipe(t *testing.T, p *party) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, "data")); err != nil {
		t.Fatal(err)
	}
}

// The binding of a founded group is in the log of every member. So a wiped host is refused by one that has
// lost its record of it, and its group stops with a sentence.
func TestBindingOutlivesTheRecords(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	for _, p := range ps {
		p.close()
	}
	wipe(t, ps[1])
	if err := os.Remove(filepath.Join(ps[2].dir, "data", "peers.json")); err != nil {
		t.Fatal(err)
	}
	ps[1].openHost(listOf(ps...))
	ps[2].openHost(listOf(ps...)) // no group is open here, so nothing tells that the directory is another one
	ps[1].openGroup()
	ps[2].remembers(1, 1)
	ps[2].openGroup()
	ps[2].waitEvent("that it refuses member 2", func(e event.Event) bool {
		r, is := e.(event.MemberRefused)
		return is && r.Group == theGroup && r.Member == 2 && r.Bound != r.Came
	})
	g := ps[1].Group(theGroup)
	select {
	case <-g.Failed():
	case <-deadline(t).Done():
		t.Fatal("the group of the wiped host has not stopped")
	}
	if err := g.Err(); err == nil || !containsAll(err.Error(), []string{"group 1 is bound to directory", "of host 2", "host 3 says so"}) {
		t.Errorf("the group of the wiped host has stopped with %v", err)
	}
	if s := ps[2].Group(theGroup).Status(); s.Leader != 0 {
		t.Errorf("host 3 follows %+v", s)
	}
	ps[0].open(listOf(ps...)) // knows the lost directory
	write(t, []*party{ps[0], ps[2]}, "without the wiped host")
	ps[0].waitRefusal(ps[1], "host 2", "another directory")
	ps[1].waitRefusal(ps[1], "host 2", "another directory")
}

// The same with the group open before the wiped host comes: then the host refuses it, and does not record it.
func TestBindingGuardsTheRecords(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	for _, p := range ps {
		p.close()
	}
	original := filepath.Join(ps[1].dir, "original")
	if err := os.Rename(filepath.Join(ps[1].dir, "data"), original); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(ps[2].dir, "data", "peers.json")); err != nil {
		t.Fatal(err)
	}
	ps[2].open(listOf(ps...))
	ps[1].open(listOf(ps...))
	ps[2].waitEvent("that it refuses host 2", hostRefusal(2, "group 1 is bound to directory"))
	ps[1].waitRefusal(ps[1], "host 2", "group 1 is bound to directory")
	ps[1].close()
	wipe(t, ps[1])
	if err := os.Rename(original, filepath.Join(ps[1].dir, "data")); err != nil {
		t.Fatal(err)
	}
	ps[1].open(listOf(ps...))
	write(t, ps[1:], "with the directory that was restored")
}

// A member whose GroupConfig.Members differs stops with both lists, and the others continue when it has the
// right one.
func TestMembersDiffer(t *testing.T) {
	ps := parties(t, 3)
	for _, p := range ps {
		p.openHost(listOf(ps...))
	}
	odd := ps[2].openGroup(1, 3)
	ps[0].openGroup()
	ps[1].openGroup()
	select {
	case <-odd.Failed():
	case <-deadline(t).Done():
		t.Fatal("the member with another list has not stopped")
	}
	if err := odd.Err(); err == nil || !containsAll(err.Error(), []string{"members [1 2 3]", "of host 3 is [1 3]"}) {
		t.Errorf("it has stopped with %v", err)
	}
	if err := odd.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	ps[2].openGroup()
	write(t, ps, "with one list")
	for _, p := range ps {
		p.waitEvent("that the group is founded", func(e event.Event) bool { return e == event.Event(event.GroupFounded{Group: theGroup}) })
	}
	if err := ps[2].Group(theGroup).Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := ps[2].OpenGroup(deadline(t), host.GroupConfig{ID: theGroup, Members: []uint64{1, 3}}, newJournal()); err != nil {
		t.Errorf("a founded group, whose members are in its log, is not opened with another list: %v", err)
	}
}

// A member that comes late gets everything; until then each of the others names it.
func TestLateMember(t *testing.T) {
	ps := parties(t, 3)
	for _, p := range ps[1:] {
		p.open(listOf(ps...))
	}
	ps[1].waitUnfounded(1)
	ps[2].waitUnfounded(1)
	ps[0].open(listOf(ps...))
	write(t, ps, "first")
	if f := ps[0].Group(theGroup).Founding(); !f.Found || !f.Founded || len(f.Unmet)+len(f.Missing)+len(f.Refused) > 0 {
		t.Errorf("a founded group says %+v", f)
	}
	ps[0].close() // a founded group does not need it
	write(t, ps[1:], "without the first")
}

// Two clusters have the same ids and no Config.Cluster: a host of one that is pointed at the other is
// refused.
func TestSwappedAddresses(t *testing.T) {
	a, b := parties(t, 2), parties(t, 2)
	founded(t, a...)
	founded(t, b...)
	for _, p := range append(a, b...) {
		p.close()
	}
	mixed := listOf(b[0], a[1])
	b[0].open(mixed)
	a[1].open(mixed)
	lists := []string{"different lists", a[0].addr, a[1].addr, b[0].addr, b[1].addr}
	b[0].waitRefusal(a[1], lists...)
	a[1].waitRefusal(a[1], lists...)
}

// A host that was founded with a list of only itself does not join hosts that list it with others.
func TestOtherFoundingList(t *testing.T) {
	ps := parties(t, 3)
	ps[2].open(listOf(ps[2]))
	ps[0].open(listOf(ps...))
	lists := []string{"different lists", ps[0].addr, ps[1].addr, ps[2].addr}
	ps[0].waitRefusal(ps[0], lists...)
	if _, err := ps[2].Group(theGroup).WaitLeader(deadline(t)); err != nil {
		t.Fatal(err) // its own leader
	}
	for line := range ps[2].lines {
		if containsAll(line, lists) {
			break
		}
	}
}

// Two directories serve one id at the same time. The second one is refused, with both addresses; the first is
// not disturbed.
func TestTwoDirectoriesOfOneID(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	double := newParty(t, 2)
	double.open(listOf(ps...))
	for _, p := range []*party{ps[0], ps[2], double} {
		p.waitRefusal(double, "host 2", ps[1].addr, double.addr)
	}
	ps[0].waitEvent("two directories of host 2", hostRefusal(2, ps[1].addr, double.addr))
	double.waitStopped("hosts [1 3], a majority of its members, refuse the directory", "another directory")
	write(t, ps, "undisturbed")
}

// A copy of a directory, made while its host was down, is started beside it. The copy has the right id and
// has missed a life, so hosts that have heard from the original since then refuse it.
func TestCopyOfADirectory(t *testing.T) {
	ps := parties(t, 3)
	founded(t, ps...)
	ps[1].close()
	double := newParty(t, 2)
	if err := os.CopyFS(filepath.Join(double.dir, "data"), os.DirFS(filepath.Join(ps[1].dir, "data"))); err != nil {
		t.Fatal(err)
	}
	ps[1].open(listOf(ps...))
	write(t, ps, "the original is back")
	ps[0].remembers(1, 2)
	ps[2].remembers(1, 2)
	double.open(listOf(ps...))
	for _, p := range []*party{ps[0], ps[2], double} {
		p.waitRefusal(double, "host 2", "copy or an old backup", ps[1].addr, double.addr)
	}
	write(t, ps, "undisturbed")
}

// An address that cannot work is refused before anything is written, with an error that names the field.
func TestAddressesThatCannotWork(t *testing.T) {
	for _, row := range []struct {
		peers  map[uint64]string
		listen string
		words  string
	}{
		{map[uint64]string{1: "127.0.0.1"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "nowhere", 3: "127.0.0.1:3"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: ":2"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "0.0.0.0:2"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:0"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:65536"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:http"}, "", "Config.Members"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:2"}, "", "hosts 2 and 3"},
		{map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:1"}, "", "hosts 1 and 2"},
		{map[uint64]string{1: "localhost:1", 2: "LocalHost:01"}, "", "hosts 1 and 2"},
		{map[uint64]string{1: "127.0.0.1:0"}, "127.0.0.1", "Config.Listen"},
	} {
		c := host.Config{ID: 1, Dir: filepath.Join(scratch.Dir(t), "data"), Members: row.peers, Listen: row.listen}
		h, err := openOne(c, newJournal(), host.WithLogger(quiet))
		if err == nil {
			h.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), row.words) {
			t.Errorf("%v: %v, want a sentence about %s", row.peers, err, row.words)
		}
		if _, err := os.Stat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the directory was touched: %v", row.peers, err)
		}
	}
}

// Port 0 is any port; Host.Addr says which.
func TestHostTellsItsAddress(t *testing.T) {
	h, err := openOne(soloConfig(t), newJournal(), host.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(context.Background())
	if host, port, err := net.SplitHostPort(h.Addr()); err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("the host listens on %q", h.Addr())
	}
	if up := h.TransportStats().PeersUp; up != 0 {
		t.Errorf("a host without peers is connected to %d", up)
	}
}

// A host that never had a term or an entry has promised nothing, so a corrected configuration may use its
// directory. The directory of any other host stays as it is.
func TestNeverStartedDirectoryTakesACorrection(t *testing.T) {
	dir := scratch.Dir(t)
	open := func(id uint64, peers map[uint64]string, campaign bool) error {
		c := host.Config{ID: id, Dir: dir, Members: peers, Listen: "127.0.0.1:0", SegmentBytes: 64 << 10}
		h, err := openOne(c, newJournal(), host.WithLogger(quiet))
		if err != nil {
			return err
		}
		if campaign {
			h.Group(theGroup).Campaign()
			if _, err := h.Group(theGroup).WaitLeader(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		return h.Close(context.Background())
	}
	three := map[uint64]string{1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"}
	for _, id := range []uint64{1, 2, 1} { // as itself, under a wrong id, and back
		if err := open(id, three, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(4, map[uint64]string{4: "127.0.0.1:0"}, true); err != nil {
		t.Fatal(err)
	}
	for id, peers := range map[uint64]map[uint64]string{1: three, 4: {4: "127.0.0.1:0", 5: "127.0.0.1:5"}} {
		if err := open(id, peers, false); err == nil {
			t.Errorf("host %d of %v took the directory of a host that has voted", id, peers)
		}
	}
	if err := open(4, map[uint64]string{4: "127.0.0.1:4"}, true); err != nil {
		t.Errorf("with another address: %v", err)
	}
}

// A missing part of the environment is an error, not a panic.
func TestOptionsThatAreNil(t *testing.T) {
	for name, option := range map[string]host.Option{
		"WithLogger": host.WithLogger(nil), "WithFS": host.WithFS(nil), "WithEnv": host.WithEnv(env.Env{}),
		"WithTransport": host.WithTransport(nil), "WithPipeline": host.WithPipeline(nil),
	} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s panics: %v", name, p)
				}
			}()
			h, err := openOne(soloConfig(t), newJournal(), option)
			if err == nil {
				h.Close(context.Background())
			}
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}()
	}
	c := soloConfig(t)
	c.HeartbeatInterval = 1
	if err := c.Validate(); err == nil || !strings.Contains(fmt.Sprint(err), "Config.HeartbeatInterval is 1ns") {
		t.Errorf("a heartbeat of 1 ns: %v", err)
	}
}
