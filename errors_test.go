package millrace_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// TestEveryError produces every error of the package, through the calls of a program, and compares what it
// says with testdata/errors.golden, where numbers are N. For a new error add a line to producers; to accept
// new sentences delete the file and run the test.
func TestEveryError(t *testing.T) {
	const golden = "testdata/errors.golden"
	c := three(t, func(uint64) millrace.Machine[[]byte, uint64] { return millrace.InMemory(&ledger{}, millrace.Bytes()) },
		func(c *millrace.Config) {
			c.HeartbeatInterval, c.ElectionTimeout = 5*time.Millisecond, 50*time.Millisecond
			c.MaxCommandBytes = 1 << 10
			c.ClientAddrs = map[uint64]string{1: "client-1", 2: "client-2", 3: "client-3"}
		})
	var notLeader *millrace.NotLeaderError
	var overloaded *millrace.OverloadedError
	var haltedError *millrace.HaltedError
	var forgottenError *millrace.ForgottenError
	var notFounded *millrace.NotFoundedError
	var alreadyApplied *millrace.AlreadyAppliedError
	producers := map[string]struct {
		is      error // errors.Is
		as      any   // errors.As
		may     bool  // MayHaveCommitted
		produce func(*testing.T, *trio[[]byte, uint64]) error
	}{
		"ErrNotLeader":        {millrace.ErrNotLeader, &notLeader, false, notLeading},
		"NotLeaderError":      {millrace.ErrNotLeader, &notLeader, false, notLeading},
		"ErrOverloaded":       {millrace.ErrOverloaded, &overloaded, false, overload},
		"OverloadedError":     {millrace.ErrOverloaded, &overloaded, false, overload},
		"ErrCompletionsFull":  {millrace.ErrCompletionsFull, nil, false, completionsFull},
		"ErrTooLarge":         {millrace.ErrTooLarge, nil, false, tooLarge},
		"ErrDropped":          {millrace.ErrDropped, nil, false, dropped},
		"ErrIndeterminate":    {millrace.ErrIndeterminate, nil, true, unknown},
		"ErrStopped":          {millrace.ErrStopped, nil, false, stopped},
		"ErrRemoved":          {millrace.ErrRemoved, nil, false, removed},
		"ErrAmnesia":          {millrace.ErrAmnesia, nil, false, amnesia},
		"ErrNoResult":         {millrace.ErrNoResult, nil, true, noResult},
		"ErrAlreadyApplied":   {millrace.ErrAlreadyApplied, &alreadyApplied, true, twice},
		"AlreadyAppliedError": {millrace.ErrAlreadyApplied, &alreadyApplied, true, twice},
		"ErrDiverged":         {millrace.ErrDiverged, nil, false, diverged},
		"ErrSessionFull":      {millrace.ErrSessionFull, nil, true, full},
		"ErrSessionExpired":   {millrace.ErrSessionExpired, nil, true, expired},
		"ErrMachineHalted":    {millrace.ErrMachineHalted, &haltedError, false, halted},
		"HaltedError":         {millrace.ErrMachineHalted, &haltedError, false, halted},
		"ErrSkipped":          {millrace.ErrSkipped, nil, false, skipped},
		"ErrForgotten":        {millrace.ErrForgotten, &forgottenError, false, forgotten},
		"ForgottenError":      {millrace.ErrForgotten, &forgottenError, false, forgotten},
		"ErrNotFounded":       {millrace.ErrNotFounded, &notFounded, false, neverFounded},
		"NotFoundedError":     {millrace.ErrNotFounded, &notFounded, false, neverFounded},
		"ErrNoQuorum":         {millrace.ErrNoQuorum, nil, false, withoutQuorum},
		"ErrNoLeader":         {millrace.ErrNoLeader, nil, false, withoutLeader},
		"ErrDiskFull":         {millrace.ErrDiskFull, nil, true, diskFull},
		"ErrCompacted":        {millrace.ErrCompacted, nil, false, compacted},
		"ErrMembersUnchanged": {millrace.ErrMembersUnchanged, nil, false, unchanged},
		"ErrPlanCancelled":    {millrace.ErrPlanCancelled, nil, false, cancelled},
		"ErrNoObjects":        {millrace.ErrNoObjects, nil, false, noObjects},
		"ErrObjectUnknown":    {millrace.ErrObjectUnknown, nil, false, objectUnknown},
		"ErrObjectNotHeld":    {millrace.ErrObjectNotHeld, nil, false, objectNotHeld},
		"ErrObjectRefused":    {millrace.ErrObjectRefused, nil, false, objectRefused},
		"ErrObjectSpace":      {millrace.ErrObjectSpace, nil, false, objectSpace},
		"ErrReentrant":        {millrace.ErrReentrant, nil, false, reentrant},
		"ErrNotLed":           {millrace.ErrNotLed, nil, false, notLed},
		"ErrObjectNotHere":    {millrace.ErrObjectNotHere, nil, false, objectNotHere},
	}
	exported := exportedErrors(t)
	if have := slices.Sorted(maps.Keys(producers)); !slices.Equal(have, exported) {
		t.Fatalf("the test produces %v\nthe package exports  %v", have, exported)
	}
	var said strings.Builder
	for _, name := range exported {
		t.Run(name, func(t *testing.T) {
			p := producers[name]
			err := p.produce(t, c)
			if !errors.Is(err, p.is) || p.as != nil && !errors.As(err, p.as) {
				t.Fatalf("have %v, want one that is %v", err, p.is)
			}
			if millrace.MayHaveCommitted(err) != p.may {
				t.Errorf("MayHaveCommitted(%v) is %v", err, !p.may)
			}
			fmt.Fprintf(&said, "%s\n\t%s\n", name, withoutNumbers(err.Error()))
		})
	}
	if t.Failed() {
		return
	}
	if overloaded.RetryAfter <= 0 || notLeader.ClientAddr != fmt.Sprint("client-", notLeader.Leader) || alreadyApplied.Receipt.Index == 0 {
		t.Errorf("not filled in: %+v, %+v, %+v", overloaded, notLeader, alreadyApplied)
	}
	want, err := os.ReadFile(golden)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(golden, []byte(said.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("%s was written", golden)
	}
	if err != nil || said.String() != string(want) {
		t.Errorf("%v; have\n%s\nwant\n%s", err, said.String(), want)
	}
}

// exportedErrors returns the names of the exported errors and error types of the package.
func exportedErrors(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return false
			case *ast.ValueSpec:
				for _, name := range n.Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			case *ast.TypeSpec:
				if strings.HasSuffix(n.Name.Name, "Error") && n.Name.IsExported() {
					names = append(names, n.Name.Name)
				}
			}
			return true
		})
	}
	slices.Sort(names)
	return names
}

func withoutNumbers(s string) string {
	s = regexp.MustCompile(`[0-9.]+(ns|µs|ms|s)\b`).ReplaceAllString(s, "D")
	s = regexp.MustCompile(`\b[0-9a-f]{16}(?:[0-9a-f]{16})?\b`).ReplaceAllString(s, "N")
	s = regexp.MustCompile(`\bentry ([0-9]+)\.[0-9]+`).ReplaceAllString(s, "entry $1") // commands may share an entry
	return regexp.MustCompile(`[0-9]+`).ReplaceAllString(s, "N")
}

func notLeading(t *testing.T, c *trio[[]byte, uint64]) error {
	for {
		_, followers := c.leader(t)
		if _, err := followers[0].Propose(t.Context(), []byte("x")); err != nil {
			t.Fatal(err) // it knows its leader now
		}
		_, err := followers[0].Propose(t.Context(), []byte("x"), millrace.IfLeader())
		if elsewhere := (*millrace.NotLeaderError)(nil); errors.As(err, &elsewhere) && elsewhere.Leader != 0 {
			return err
		} // otherwise the leader has changed
	}
}

func overload(t *testing.T, _ *trio[[]byte, uint64]) error {
	machine, _, release := held()
	defer release()
	c := alone(t)
	c.MemoryBytes = 64 << 10
	n := open(t, c, millrace.InMemory(machine, millrace.Bytes()))
	lead(t, n)
	for {
		if _, err := n.Submit(make([]byte, 256)); err != nil {
			return err
		}
	}
}

func completionsFull(t *testing.T, c *trio[[]byte, uint64]) error {
	leader, _ := c.leader(t)
	done := millrace.NewCompletions[uint64](1)
	_, err := leader.SubmitMany([][]byte{{1}, {2}}, []uint64{1, 2}, done)
	gather(t, done, 1)
	return err
}

func tooLarge(t *testing.T, c *trio[[]byte, uint64]) error {
	_, err := c.nodes[0].Propose(t.Context(), make([]byte, 1<<10+1))
	return err
}

// dropped cuts the leader off with a command, which another leader's takes the place of.
func dropped(t *testing.T, c *trio[[]byte, uint64]) error {
	for {
		leader, followers := c.leader(t)
		c.isolate(leader, true)
		p, err := leader.Submit([]byte("lost"), millrace.IfLeader())
		if err == nil {
			_, err = followers[0].Propose(t.Context(), []byte("won"))
		}
		c.isolate(leader, false)
		if err == nil {
			_, _, err = p.Wait(t.Context())
		}
		if !errors.Is(err, millrace.ErrNotLeader) { // otherwise it had stopped leading before
			return err
		}
	}
}

// unknown gives a command up that a leader without its followers has.
func unknown(t *testing.T, c *trio[[]byte, uint64]) error {
	if _, err := c.nodes[0].Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	leader, _ := c.leader(t)
	c.isolate(leader, true)
	defer c.isolate(leader, false)
	p, err := leader.Submit([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, _, err = p.Wait(ctx)
	return err
}

// neverFounded proposes on one of two members, the other of which never comes.
func neverFounded(t *testing.T, _ *trio[[]byte, uint64]) error {
	c := millrace.Config{ID: 1, Dir: "/data/1", Members: map[uint64]string{1: "one", 2: "two"}}
	n := open(t, c, millrace.InMemory(&ledger{}, millrace.Bytes()), millrace.WithTransport(loopback.NewNetwork().Host(1)), millrace.WithHostOptions(host.WithFS(crashfs.New().Mount())))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := n.Propose(ctx, []byte("x"))
	return err
}

// withoutQuorum reads on a leader that hears no other member.
func withoutQuorum(t *testing.T, c *trio[[]byte, uint64]) error {
	leader, _ := c.leader(t)
	c.isolate(leader, true)
	defer c.isolate(leader, false)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	return leader.View(ctx, millrace.Linearizable, func(millrace.ReadAt) error { return nil })
}

// withoutLeader proposes on a member of three that hear each other in one direction only, around a ring.
func withoutLeader(t *testing.T, _ *trio[[]byte, uint64]) (err error) {
	waits(t, []uint64{1, 2, 3}, nil, func(net *loopback.Network, nodes []*millrace.Node[int64, int64]) {
		if _, err := nodes[0].Propose(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		for id := range uint64(3) {
			net.Cut(id+1, (id+1)%3+1)
		}
		<-time.After(time.Minute) // of virtual time
		for range 20 {            // whom a host hears changes with the phase of the elections
			ctx, cancel := context.WithTimeout(context.Background(), 700*time.Millisecond)
			_, err = nodes[0].Propose(ctx, 1)
			if cancel(); errors.Is(err, millrace.ErrNoLeader) {
				return
			}
		}
	})
	return err
}

// diskFull proposes where the disk takes no more.
func diskFull(t *testing.T, _ *trio[[]byte, uint64]) error {
	disk := crashfs.New()
	c := millrace.Config{ID: 1, Dir: "/data/1", Members: map[uint64]string{1: "one"}}
	n := open(t, c, millrace.InMemory(&ledger{}, millrace.Bytes()), millrace.WithTransport(loopback.NewNetwork().Host(1)), millrace.WithHostOptions(host.WithFS(disk.Mount())))
	if _, err := n.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	defer disk.SetHook(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := n.Propose(ctx, []byte("y"))
	return err
}

// compacted asks for commands that a snapshot has taken the place of.
func compacted(t *testing.T, _ *trio[[]byte, uint64]) error {
	t.Chdir(t.TempDir())
	h, n, _ := openRelative(t)
	t.Cleanup(func() { h.Close(context.Background()) })
	for range 40 { // 5 segments
		if _, err := n.Propose(t.Context(), make([]byte, 8<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.TakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n.Status().FirstIndex == 1 { // it forgets in a later turn
		if _, err := n.Read(t.Context(), millrace.Linearizable); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range n.Log(t.Context(), 1, 0) {
		if err != nil {
			return err
		}
	}
	return nil
}

func unchanged(t *testing.T, c *trio[[]byte, uint64]) error {
	leader, _ := c.leader(t)
	_, err := leader.Plan(t.Context(), millrace.RemoveMember(9))
	return err
}

// cancelled cancels the promotion of a learner that is cut off and does not catch up.
func cancelled(t *testing.T, _ *trio[[]byte, uint64]) error {
	c := three(t, func(uint64) millrace.Machine[[]byte, uint64] { return millrace.InMemory(&ledger{}, millrace.Bytes()) })
	leader, followers := c.leader(t)
	if _, err := leader.Propose(t.Context(), []byte("x")); err != nil { // a plan needs a group that is founded
		t.Fatal(err)
	}
	plan, err := leader.Plan(t.Context(), millrace.DemoteMember(followers[0].Status().ID))
	if err == nil {
		err = leader.Execute(t.Context(), plan)
	}
	if err == nil {
		plan, err = leader.Plan(t.Context(), millrace.PromoteMember(followers[0].Status().ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	c.isolate(followers[0], true)
	if _, err := leader.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	ends := make(chan error)
	go func() { ends <- leader.Execute(t.Context(), plan) }()
	for leader.Members().Plan == "" {
		if _, err := leader.Propose(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := leader.CancelPlan(t.Context()); err != nil {
		t.Fatal(err)
	}
	return <-ends
}

func stopped(t *testing.T, _ *trio[[]byte, uint64]) error {
	n, err := millrace.Open(t.Context(), alone(t), millrace.InMemory(&ledger{}, millrace.Bytes()), quiet())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = n.Propose(t.Context(), []byte("x"))
	return err
}

func removed(t *testing.T, _ *trio[[]byte, uint64]) error {
	n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Bytes()))
	if err := n.Host().RemoveGroup(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	_, err := millrace.OpenGroup(t.Context(), n.Host(), millrace.GroupConfig{ID: 1}, millrace.InMemory(&ledger{}, millrace.Bytes()))
	return err
}

// amnesia loses power in a mode of durability that counts writes too early.
func amnesia(t *testing.T, _ *trio[[]byte, uint64]) error {
	disk := crashfs.New()
	options := func() []host.Option {
		return []host.Option{host.WithTransport(loopback.NewNetwork().Host(1)), host.WithFS(disk.Mount())}
	}
	h, err := host.Open(t.Context(), host.Config{ID: 1, Dir: "/data/1", Members: map[uint64]string{1: ""}, Durability: wal.ModeUnsafeOS}, options()...)
	if err != nil {
		t.Fatal(err)
	}
	n, err := millrace.OpenGroup(t.Context(), h, millrace.GroupConfig{ID: 1}, millrace.InMemory(&ledger{}, millrace.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Propose(t.Context(), []byte("promised")); err != nil {
		t.Fatal(err)
	}
	disk.Crash(crashfs.LoseAll, nil)
	_ = h.Close(context.Background()) // of a process that is dead
	_, err = millrace.Open(t.Context(), millrace.Config{ID: 1, Dir: "/data/1", Members: map[uint64]string{1: "127.0.0.1:0"}},
		millrace.InMemory(&ledger{}, millrace.Bytes()), quiet(), millrace.WithHostOptions(host.WithFS(disk.Mount())))
	return err
}

// noResult closes a node whose state machine hangs in Apply.
func noResult(t *testing.T, _ *trio[[]byte, uint64]) error {
	machine, entered, release := held()
	defer release()
	n := open(t, alone(t), millrace.InMemory(machine, millrace.Bytes()))
	p, err := n.Submit([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	if _, err := p.WaitCommitted(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-p.Done(); cancel() }()
	if err := n.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close while Apply hangs: %v", err)
	}
	_, _, err = p.Wait(t.Context())
	return err
}

// poisoned opens a node with a snapshot, and halts its machine at the first command of a session.
func poisoned(t *testing.T) (*millrace.Node[[]byte, uint64], millrace.SessionID, error) {
	n := open(t, alone(t), millrace.InMemory(&ledger{apply: func(batch []millrace.Command[[]byte]) error {
		if string(batch[0].Value) == "poison" {
			return errors.New("no such shelf")
		}
		return nil
	}}, millrace.Bytes()))
	if _, err := n.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.TakeSnapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	session := n.NewSession().ID()
	_, err := n.Propose(t.Context(), []byte("poison"), millrace.InSession(millrace.SessionMark{Session: session, Number: 1}))
	if !errors.Is(err, millrace.ErrNoResult) || !errors.Is(err, millrace.ErrMachineHalted) {
		t.Errorf("the command that halts the machine: %v", err)
	}
	return n, session, n.Halted()
}

func halted(t *testing.T, _ *trio[[]byte, uint64]) error {
	n, _, _ := poisoned(t)
	_, err := n.Propose(t.Context(), []byte("x"))
	return err
}

// skipped sends a skipped command again, under its number, when the machine works again.
func skipped(t *testing.T, _ *trio[[]byte, uint64]) error {
	n, session, why := poisoned(t)
	var at *millrace.HaltedError
	if !errors.As(why, &at) {
		t.Fatal(why)
	}
	if err := n.SkipCommand(t.Context(), millrace.Position{Index: at.First, Pos: at.FirstPos}); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := n.Propose(t.Context(), []byte("poison"), millrace.InSession(millrace.SessionMark{Session: session, Number: 1}))
		if !errors.Is(err, millrace.ErrMachineHalted) {
			return err
		}
	}
}

func twice(t *testing.T, c *trio[[]byte, uint64]) error {
	session := c.nodes[0].NewSession().ID()
	var r millrace.Receipt
	if _, err := c.nodes[0].Propose(t.Context(), []byte("once"), millrace.InSession(millrace.SessionMark{Session: session, Number: 1}), millrace.WithReceipt(&r)); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[1].WaitApplied(t.Context(), r.Index); err != nil { // or it would get the result, too
		t.Fatal(err)
	}
	_, err := c.nodes[1].Propose(t.Context(), []byte("once"), millrace.InSession(millrace.SessionMark{Session: session, Number: 1}))
	return err
}

// expired names a session that was drawn in a later life of the group, as its log time says.
func expired(t *testing.T, c *trio[[]byte, uint64]) error {
	session := c.nodes[0].NewSession().ID()
	session.Birth += 1000 * time.Hour
	_, err := c.nodes[0].Propose(t.Context(), []byte("x"), millrace.InSession(millrace.SessionMark{Session: session, Number: 1}))
	return err
}

// reentrant proposes in a function in which nothing is applied.
func reentrant(t *testing.T, c *trio[[]byte, uint64]) (err error) {
	failed := c.nodes[0].ViewExclusive(t.Context(), millrace.Linearizable, func() error {
		_, err = c.nodes[0].Propose(t.Context(), []byte("x"))
		return nil
	})
	if failed != nil {
		t.Fatal(failed)
	}
	return err
}

// notLed leads until another member does.
func notLed(t *testing.T, c *trio[[]byte, uint64]) error {
	leader, _ := c.leader(t)
	for ctx := range leader.Led(t.Context()) {
		if err := leader.TransferLeadership(ctx, 0); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// full never says that it knows an outcome.
func full(t *testing.T, _ *trio[[]byte, uint64]) error {
	n := open(t, alone(t), millrace.InMemory(&ledger{}, millrace.Bytes()))
	session := n.NewSession().ID()
	for number := uint64(1); ; {
		var pending []*millrace.Pending[uint64]
		for range 1000 {
			p, err := n.Submit([]byte("x"), millrace.InSession(millrace.SessionMark{Session: session, Number: number, Low: 1}))
			if err != nil {
				t.Fatal(err)
			}
			pending, number = append(pending, p), number+1
		}
		for _, p := range pending {
			if _, _, err := p.Wait(t.Context()); err != nil {
				return err
			}
		}
	}
}

// diverged has a member whose state differs.
func diverged(t *testing.T, _ *trio[[]byte, uint64]) error {
	c := three(t, func(id uint64) millrace.Machine[[]byte, uint64] {
		return millrace.InMemory(&ledger{}, millrace.Bytes()).StopDiverged().Digest(func() uint64 { return id / 3 })
	})
	for c.nodes[2].Err() == nil {
		if _, err := c.nodes[0].Propose(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	return c.nodes[2].Err()
}

// forgotten subscribes behind what a node keeps no more.
func forgotten(t *testing.T, _ *trio[[]byte, uint64]) error {
	c := alone(t)
	c.PublicationBytes = 1
	n := open(t, c, announcers(1))
	lead(t, n)
	for range 2 {
		if _, err := n.Propose(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range n.Subscribe(t.Context(), millrace.Bookmark{}) {
		return err
	}
	return nil
}
