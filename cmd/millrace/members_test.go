package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/counting"
	"github.com/millrace/millrace/internal/scratch"
)

// say runs a command line of members.
func say(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	return runVerb(t, ctx, append([]string{"members"}, args...)...)
}

// runMembers runs a cluster of one with an admin socket, in the directory "one", and hosts that wait to be
// added to it. It returns their addresses.
func runMembers(t *testing.T, waiting ...uint64) map[uint64]string {
	t.Helper()
	addrs, _ := runMembersAnd(t, waiting...)
	return addrs
}

// runMembersAnd returns the nodes, too.
func runMembersAnd(t *testing.T, waiting ...uint64) (addrs map[uint64]string, nodes map[uint64]*millrace.Node[int64, int64]) {
	t.Helper()
	addrs, nodes = map[uint64]string{1: scratch.Address(t)}, map[uint64]*millrace.Node[int64, int64]{}
	open := func(c millrace.Config) *millrace.Node[int64, int64] {
		c.Logger = slog.New(slog.DiscardHandler)
		n, err := millrace.Open(t.Context(), c, millrace.InMemory(&counting.Counter{}, millrace.Binary[int64]()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		return n
	}
	one := open(millrace.Config{ID: 1, Dir: "one", Members: map[uint64]string{1: addrs[1]}, AdminSocket: true, FlightRecorder: host.FlightRecorder{Bytes: 1 << 20}})
	propose(t, one, 7, 7)
	for _, id := range waiting {
		addrs[id] = scratch.Address(t)
		nodes[id] = open(millrace.Config{ID: id, Dir: "waiting" + string(rune('0'+id)), Joins: true, Cluster: one.Cluster(), Members: map[uint64]string{1: addrs[1], id: addrs[id]}})
	}
	return addrs, nodes
}

// planIn returns the id that plan has printed.
func planIn(t *testing.T, text string) string {
	t.Helper()
	id := regexp.MustCompile(`execute one ([0-9a-f]{32})`).FindStringSubmatch(text)
	if id == nil {
		t.Fatalf("the plan says no id: %s", text)
	}
	return id[1]
}

// An operator looks at the members, plans, and carries out.
func TestMembersOfARunningHost(t *testing.T) {
	t.Chdir(t.TempDir())
	addrs := runMembers(t, 2, 3)
	is := func(want int, text string, args ...string) (out string) {
		t.Helper()
		status, out, wrong := say(t, t.Context(), args...)
		if status != want || !strings.Contains(out+wrong, text) {
			t.Errorf("%v: status %d, want %d, and %q: %s%s", args, status, want, text, out, wrong)
		}
		return out
	}
	is(exitOK, "host 1 leads", "list", "one")
	is(exitOK, `"founded": true`, "list", "one", "--json")
	is(exitFailed, "group 9 is not open", "list", "one", "--group", "9")
	is(exitCannot, "has no admin socket", "list", "waiting2")
	planned := is(exitOK, "tolerates", "plan", "one", "add", "2="+addrs[2], "learner", "3="+addrs[3])
	id := planIn(t, planned)
	is(exitUsage, "no terminal to ask on", "execute", "one", "add", "2")
	is(exitUsage, "is no change", "plan", "one", "join", "2")
	is(exitUsage, "needs no address", "plan", "one", "remove", "2="+addrs[2])
	is(exitUsage, "is no member", "plan", "one", "remove", "two")
	is(exitUsage, "is no plan", "execute", "one", "nonsense")
	is(exitFailed, "neither under way", "execute", "one", "0123456789abcdef")
	is(exitOK, "all of it is in force", "execute", "one", id)
	is(exitOK, "all of it is in force", "execute", "one", id[:8]) // again: it has ended
	if list := is(exitOK, "learner", "list", "one"); !strings.Contains(list, addrs[3]) {
		t.Errorf("the list lacks an address: %s", list)
	}
	is(exitFailed, "there is no member 9", "plan", "one", "remove", "9")
	is(exitOK, "all of it is in force", "execute", "one", "--yes", "remove", "3")
	is(exitOK, "removed for good: [3]", "list", "one")
	is(exitOK, "", "address", "one", "2="+addrs[2])
	is(exitOK, "millrace-join-1.", "token", "one", "--life", "10m")
	is(exitOK, "is open: any new host may become a voter with it within 10m0s", "list", "one")
	is(exitUsage, "want more than nothing", "token", "one", "--life", "-1s")
	is(exitFailed, "at most", "token", "one", "--life", "1000h")
	is(exitFailed, "was not refused for its key", "accept-key", "one", "2")
	is(exitUsage, "want an ID", "accept-key", "one", "2=a:1")
	is(exitFailed, "host 1", "address", "one", "1="+addrs[2])
	is(exitFailed, "neither under way", "cancel", "one", "0123456789abcdef")
}

// interrupter interrupts when something is printed.
type interrupter struct {
	strings.Builder
	interrupt context.CancelCauseFunc
}

func (i *interrupter) Write(b []byte) (int, error) {
	i.interrupt(errInterrupted)
	return i.Builder.Write(b)
}

// Interrupting execute ends the watching, and says so. The plan goes on, here waiting for a host that has
// gone, until it is cancelled.
func TestExecuteIsInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	addrs, nodes := runMembersAnd(t, 2)
	status, planned, _ := say(t, t.Context(), "plan", "one", "add", "2="+addrs[2])
	if status != exitOK {
		t.Fatalf("status %d: %s", status, planned)
	}
	id := planIn(t, planned)
	if err := nodes[2].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	errs, err := os.Create("stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	out := &interrupter{interrupt: interrupt}
	status = run(ctx, []string{"members", "execute", "one", id}, app{stdout: out, stderr: errs})
	wrong, err := os.ReadFile("stderr")
	if status != exitInterrupted || err != nil || !strings.Contains(string(wrong), "plan "+id+" goes on") {
		t.Errorf("status %d, it says %q, %v", status, wrong, err)
	}
	is := func(want int, text string, args ...string) {
		t.Helper()
		if status, out, wrong := say(t, t.Context(), args...); status != want || !strings.Contains(out+wrong, text) {
			t.Errorf("%v: status %d, want %d, and %q: %s%s", args, status, want, text, out, wrong)
		}
	}
	is(exitOK, "under way: plan "+id[:8], "list", "one")
	is(exitFailed, "is under way", "plan", "one", "demote", "1")
	is(exitOK, "was cancelled", "cancel", "one", id)
	is(exitFailed, "was cancelled", "execute", "one", id)
}

// writeSurvivor makes the directory of host 1 of a group whose other members are gone.
func writeSurvivor(t *testing.T) (dir string) {
	t.Helper()
	root := t.TempDir()
	members := map[uint64]string{1: scratch.Address(t), 2: scratch.Address(t), 3: scratch.Address(t)}
	var nodes []*millrace.Node[int64, int64]
	for id := range uint64(3) {
		nodes = append(nodes, openCounterWith(t, millrace.Config{ID: id + 1, Dir: filepath.Join(root, string(rune('1'+id))), Members: members}))
	}
	propose(t, nodes[0], 7, 7)
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Close(t.Context()))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "1")
}

// A survivor is rescued: looked at, refused without a name for the loss, and then written.
func TestRescueByHand(t *testing.T) {
	dir := writeSurvivor(t)
	is := func(want int, text string, args ...string) {
		t.Helper()
		status, out, wrong := say(t, t.Context(), append([]string{"rescue"}, args...)...)
		if status != want || !strings.Contains(out+wrong, text) {
			t.Errorf("%v: status %d, want %d, and %q: %s%s", args, status, want, text, out, wrong)
		}
	}
	is(exitOK, "may be lost  what only these members had, which were not looked at: 2 (voter), 3 (voter)", dir)
	is(exitFailed, "--accept-loss", dir, "--write")
	is(exitUsage, "--accept-loss is for --write", dir, "--accept-loss")
	is(exitUsage, "leave --group out", dir, "--all", "--group", "1")
	is(exitFailed, "has nothing of the group", dir, "--group", "9")
	is(exitFailed, "has lost no majority", dir, filepath.Join(filepath.Dir(dir), "2"))
	is(exitCannot, "is no directory of a host", t.TempDir())
	is(exitOK, "is host 1, alone, of the new cluster", dir, "--write", "--accept-loss")
	is(exitFailed, "has lost no majority", dir)
	n := openCounterWith(t, millrace.Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:7001", 2: "127.0.0.1:7002", 3: "127.0.0.1:7003"}, Listen: "127.0.0.1:0"})
	propose(t, n, 1, 8)
	is(exitCannot, "stopped", dir)
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// What the help says is a promise to operators.
func TestMembersHelp(t *testing.T) {
	var all strings.Builder
	for _, verb := range []string{"", "list", "plan", "execute", "cancel", "token", "address", "accept-key", "skip", "rescue"} {
		_, out, _ := say(t, t.Context(), strings.Fields(verb+" --help")...)
		all.WriteString("== millrace members " + verb + "\n" + out + "\n")
	}
	labtest.Golden(t, "members-help.txt", []byte(all.String()))
}
