package millrace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/timers"
	"github.com/millrace/millrace/transport/loopback"
	"github.com/millrace/millrace/vfs/crashfs"
)

// broken is everything that a user gives to a node. The function that in names panics, or ends its goroutine.
type broken struct {
	mu    sync.Mutex
	in    string
	how   func()
	calls atomic.Int64 // of the functions that were broken
	lines bytes.Buffer
	n     uint64 // the last command applied
	kind  string // of its machine: "files", "objects", or "" for neither
}

func (b *broken) at(name string) {
	b.mu.Lock()
	breaks := b.in == name
	b.mu.Unlock()
	if breaks {
		b.calls.Add(1)
		b.how()
	}
}

func (b *broken) breakIn(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.in = name
}

func (b *broken) Apply(batch []millrace.Command[string], results []string) error {
	b.at("Apply")
	for i := range batch {
		b.n = batch[i].Index
		results[i] = batch[i].Value
	}
	return nil
}

func (b *broken) MembersChanged(c millrace.Configuration) error {
	b.at("MembersChanged")
	b.n = c.Index
	return nil
}

func (b *broken) Snapshot() (millrace.Snapshot, error) {
	b.at("Snapshot")
	return brokenView{b, b.n}, nil
}

func (b *broken) Restore(_ context.Context, r io.Reader) error {
	b.at("Restore")
	_, err := fmt.Fscan(r, &b.n)
	return err
}

func (b *broken) Applied() (uint64, error) { b.at("Applied"); return b.n, nil }
func (b *broken) Sync() error              { b.at("Sync"); return nil }
func (b *broken) digest() uint64           { b.at("Digest"); return 1 }
func (b *broken) event(millrace.Event)     { b.at("event") }

type brokenView struct {
	*broken
	n uint64
}

func (v brokenView) WriteTo(_ context.Context, w io.Writer) error {
	v.at("WriteTo")
	_, err := fmt.Fprint(w, v.n)
	return err
}

func (v brokenView) Close() error { v.at("Close"); return nil }

// brokenFiles is a machine whose snapshots have files.
type brokenFiles struct{ *broken }

func (b brokenFiles) Snapshot() (millrace.Snapshot, error) {
	v, err := b.broken.Snapshot()
	return brokenFilesView{v.(brokenView)}, err
}

func (b brokenFiles) RestoreFiles(ctx context.Context, r io.Reader, _ millrace.SnapshotFiles) error {
	b.at("RestoreFiles")
	return b.Restore(ctx, r)
}

type brokenFilesView struct{ brokenView }

func (v brokenFilesView) Files() []millrace.SnapshotFile { v.at("Files"); return nil }

// brokenObjects is a machine in a group with objects.
type brokenObjects struct{ *broken }

func (b brokenObjects) UseObjects(*millrace.Objects) { b.at("UseObjects") }

// brokenCodec is sure of itself, so that commands come to Decode where they are applied.
type brokenCodec struct {
	*broken
	of string
}

func (c brokenCodec) Append(dst []byte, v string) ([]byte, error) {
	c.at("Append" + c.of)
	return append(dst, v...), nil
}

func (c brokenCodec) Decode(b []byte) (string, error) { c.at("Decode" + c.of); return string(b), nil }
func (c brokenCodec) Sure() bool                      { c.at("Sure"); return true }
func (c brokenCodec) LeastBytes(string) int           { c.at("LeastBytes"); return 0 }

// brokenHandler is a slog.Handler.
type brokenHandler struct{ *broken }

func (h brokenHandler) Enabled(context.Context, slog.Level) bool { h.at("Enabled"); return true }
func (h brokenHandler) Handle(_ context.Context, r slog.Record) error {
	h.at("Handle")
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprint(&h.lines, r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(&h.lines, " %v=%v", a.Key, a.Value); return true })
	return nil
}
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h brokenHandler) WithGroup(string) slog.Handler      { return h }

type brokenNode = millrace.Node[string, string]

// The functions of a user, how each is called, and what happens to a panic or of runtime.Goexit in it.
// docs/howto/embed.md has the same table.
var userFunctions = []struct {
	name string
	call func(context.Context, *brokenNode) error // makes the node call it
	says string                                   // of the error, or in the log if goesOn
	// What breaks: the call, with an error; or the machine of this member.
	machine bool
	// inCall: it runs in the goroutine of the caller. A panic is an error, and runtime.Goexit ends that
	// goroutine. passes: the caller gets the panic as it is, too.
	inCall, passes bool
	kind           string // of the machine
}{
	{name: "Append", call: propose, says: "Append panicked", inCall: true},
	{name: "LeastBytes", call: propose, says: "LeastBytes of the codec panicked", inCall: true},
	{name: "Sure", call: func(ctx context.Context, _ *brokenNode) error {
		millrace.InMemory(theBroken(ctx), brokenCodec{theBroken(ctx), ""})
		return nil
	}, passes: true},
	{name: "Decode", call: propose, says: "Decode of the codec", machine: true},
	{name: "Apply", call: propose, says: "Apply of the state machine", machine: true},
	{name: "AppendResult", call: propose, says: "Append of the codec of Machine.Results", machine: true},
	{name: "Decode", call: func(ctx context.Context, n *brokenNode) error { // of an entry that was applied
		for _, err := range n.Log(ctx, 1, 0) {
			if err != nil {
				return err
			}
		}
		return nil
	}, says: "Decode panicked", inCall: true},
	{name: "MembersChanged", call: func(ctx context.Context, n *brokenNode) error { return n.Upgrade(ctx, 1) }, says: "MembersChanged of the state machine", machine: true},
	{name: "Digest", call: proposeLater, says: "Digest of the state machine", machine: true},
	{name: "DecodeResult", call: proposeTwice, says: "Decode panicked"},
	{name: "Snapshot", call: takeSnapshot, says: "Snapshot of the state machine"},
	{name: "WriteTo", call: takeSnapshot, says: "WriteTo of a snapshot"},
	{name: "Sync", call: takeSnapshot, says: "Sync of the state machine"},
	{name: "Close", call: takeSnapshot, says: "Close of a snapshot"},
	{name: "Files", call: takeSnapshot, says: "Files of a snapshot", kind: "files"},
	{name: "ViewExclusive", call: func(ctx context.Context, n *brokenNode) error {
		return n.ViewExclusive(ctx, millrace.Linearizable, func() error { theBroken(ctx).at("ViewExclusive"); return nil })
	}, says: "the function of a read"},
	{name: "View", call: func(ctx context.Context, n *brokenNode) error {
		return n.View(ctx, millrace.Linearizable, func(millrace.ReadAt) error { theBroken(ctx).at("View"); return nil })
	}, passes: true},
	{name: "Write", call: func(ctx context.Context, n *brokenNode) error {
		_, err := n.Export(ctx, brokenWriter{theBroken(ctx)})
		return err
	}, passes: true},
	{name: "loop over Events", call: func(ctx context.Context, n *brokenNode) error {
		events := n.Events(ctx)
		if _, err := n.TakeSnapshot(ctx); err != nil {
			return err
		}
		for range events {
			theBroken(ctx).at("loop over Events")
			break
		}
		return nil
	}, passes: true},
	{name: "loop over Led", call: func(ctx context.Context, n *brokenNode) error {
		for range n.Led(ctx) {
			theBroken(ctx).at("loop over Led")
			break
		}
		return nil
	}, passes: true},
	{name: "loop over Log", call: func(ctx context.Context, n *brokenNode) error {
		for range n.Log(ctx, 1, 0) {
			theBroken(ctx).at("loop over Log")
			break
		}
		return nil
	}, passes: true},
	{name: "Read", call: upload, passes: true, kind: "objects"},
	{name: "Progress", call: upload, passes: true, kind: "objects"},
	{name: "event", call: func(ctx context.Context, n *brokenNode) error {
		_, err := n.TakeSnapshot(ctx)
		return err
	}, says: "the function of WithEvents"},
	{name: "Handle", call: takeSnapshot},
	{name: "Enabled", call: takeSnapshot},
}

type brokenWriter struct{ *broken }

func (w brokenWriter) Write(b []byte) (int, error) { w.at("Write"); return len(b), nil }

type brokenReader struct{ *broken }

func (r brokenReader) Read(b []byte) (int, error) { r.at("Read"); return copy(b, "x"), io.EOF }

type brokenKey struct{}

func theBroken(ctx context.Context) *broken { return ctx.Value(brokenKey{}).(*broken) }

func propose(ctx context.Context, n *brokenNode) error {
	_, err := n.Propose(ctx, "x")
	return err
}

// proposeLater proposes at another second of the log time, when the digest is taken.
func proposeLater(ctx context.Context, n *brokenNode) error {
	<-time.After(3 * time.Second) // of virtual time
	if err := propose(ctx, n); err != nil {
		return err
	}
	<-time.After(3 * time.Second)
	return propose(ctx, n)
}

func proposeTwice(ctx context.Context, n *brokenNode) error {
	id, err := n.NewSession().ID(), error(nil)
	for range 2 {
		if err == nil {
			_, err = n.Propose(ctx, "x", millrace.InSession(millrace.SessionMark{Session: id, Number: 1}))
		}
	}
	return err
}

func upload(ctx context.Context, n *brokenNode) error {
	b := theBroken(ctx)
	_, err := n.Upload(ctx, brokenReader{b}, millrace.UploadOptions{Progress: func(int64) { b.at("Progress") }})
	return err
}

func takeSnapshot(ctx context.Context, n *brokenNode) error {
	_, err := n.TakeSnapshot(ctx)
	return err
}

// Each function of a user costs what the table says, named, and no process.
func TestUserFunctions(t *testing.T) {
	for _, f := range userFunctions {
		for how, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
			t.Run(strings.TrimPrefix(f.kind+" ", " ")+f.name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &broken{how: end, kind: f.kind}
					n := openBroken(t, b, crashfs.New())
					ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), brokenKey{}, b), time.Minute)
					defer cancel()
					if err := propose(ctx, n); err != nil {
						t.Fatal(err)
					}
					b.breakIn(f.name)
					err, passed := inGoroutine(func() error { return f.call(ctx, n) })
					synctest.Wait()
					b.breakIn("")
					synctest.Wait()
					if b.calls.Load() == 0 {
						t.Fatalf("it was not called: %v", err)
					}
					callers := f.passes || f.inCall && how == "goexit"
					if passed != callers {
						t.Errorf("the caller's goroutine was ended: %v, want %v; error %v", passed, callers, err)
					}
					b.mu.Lock()
					lines := b.lines.String()
					b.mu.Unlock()
					if text := fmt.Sprint(err, n.Err(), n.Explain(), lines); !callers && !strings.Contains(text, f.says) && (how == "panic" || f.machine) {
						t.Errorf("nothing says %q: %s", f.says, text)
					}
					if f.machine {
						return // docs/howto/embed.md says what such a member does
					}
					if err := propose(ctx, n); err != nil {
						t.Errorf("afterwards: %v", err)
					}
					if _, err := n.TakeSnapshot(ctx); err != nil {
						t.Errorf("afterwards: %v", err)
					}
					if err := n.ViewExclusive(ctx, millrace.Linearizable, func() error { return nil }); err != nil {
						t.Errorf("afterwards: %v", err)
					}
				})
			})
		}
	}
}

// A node with a function that panics when it is opened does not open, with a sentence, and opens when that
// works.
func TestUserFunctionsAtTheStart(t *testing.T) {
	for _, f := range []struct{ name, kind string }{{"Restore", ""}, {"RestoreFiles", "files"}, {"Applied", ""}, {"UseObjects", "objects"}} {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := crashfs.New()
				b := &broken{kind: f.kind, how: func() { panic("boom") }}
				n := openBroken(t, b, disk)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := errors.Join(propose(ctx, n), takeSnapshot(ctx, n), n.Close(ctx)); err != nil {
					t.Fatal(err)
				}
				b.n = 0 // its disk was wiped
				b.breakIn(f.name)
				if _, err := tryBroken(b, disk); err == nil || !strings.Contains(err.Error(), f.name+" of the state machine panicked: boom") {
					t.Errorf("Open: %v", err)
				}
				b.how = runtime.Goexit
				if err, passed := inGoroutine(func() error { _, err := tryBroken(b, disk); return err }); !passed {
					t.Errorf("Open: %v, and the function has ended its goroutine", err)
				}
				b.breakIn("")
				if err := propose(ctx, openBroken(t, b, disk)); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// inGoroutine calls f on a goroutine of its own, and reports whether f has ended it or let a panic through.
func inGoroutine(f func() error) (err error, passed bool) {
	done := make(chan struct{})
	passed = true
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		err = f()
		passed = false
	}()
	<-done
	return err, passed
}

func openBroken(t *testing.T, b *broken, disk *crashfs.FS) *brokenNode {
	t.Helper()
	n, err := tryBroken(b, disk)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func tryBroken(b *broken, disk *crashfs.FS) (*brokenNode, error) {
	var m millrace.Machine[string, string]
	switch b.kind {
	case "files":
		m = millrace.Durable[string, string](brokenFiles{b}, brokenCodec{b, ""})
	case "objects":
		m = millrace.InMemory[string, string](brokenObjects{b}, brokenCodec{b, ""}).Objects(millrace.ObjectOptions{})
	default:
		m = millrace.Durable[string, string](b, brokenCodec{b, ""})
	}
	m = m.Results(brokenCodec{b, "Result"}).Digest(b.digest).Versions(0, 1)
	return millrace.Open(context.Background(), millrace.Config{ID: 1, Dir: "/data", Members: map[uint64]string{1: "one"}, Logger: slog.New(brokenHandler{b}), OnEvent: b.event}, m,
		millrace.WithTransport(loopback.NewNetwork().Host(1)), millrace.WithHostOptions(host.WithFS(disk.Mount())))
}

// brittle are timers whose methods panic at first.
type brittle struct {
	timers.Queue[string]
	looks int
}

func (b *brittle) Next() (time.Duration, bool) {
	if b.looks++; b.looks == 1 {
		panic("Next")
	}
	return b.Queue.Next()
}

func (b *brittle) Sooner() <-chan struct{} {
	if b.looks == 1 {
		b.looks++
		runtime.Goexit()
	}
	return b.Queue.Sooner()
}

// ringing is a machine that says when its timer has expired.
type ringing struct {
	ledger
	timers brittle
	rings  chan time.Duration
}

func (r *ringing) Apply(batch []millrace.Command[[]byte], results []uint64) error {
	for _, c := range batch {
		for range r.timers.Expire(c.Time, 1) {
			r.rings <- c.Time
		}
		if len(c.Value) > 0 {
			r.timers.Set("egg", c.Time+10*time.Millisecond)
		}
	}
	return r.ledger.Apply(batch, results)
}

// TestTimersThatPanic: a panic in a method of Timers costs a look of the leader's clock, which looks again.
func TestTimersThatPanic(t *testing.T) {
	m := &ringing{rings: make(chan time.Duration, 1)}
	n := open(t, alone(t), millrace.InMemory(m, millrace.Bytes()).Timers(&m.timers, nil))
	if _, err := n.Propose(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	<-m.rings
	looks := 0
	if err := n.ViewExclusive(t.Context(), millrace.Local, func() error { looks = m.timers.looks; return nil }); err != nil || looks < 3 {
		t.Errorf("the timers were looked at %d times, %v", looks, err)
	}
}

// A sink that panics is not called again. What it was to get is refused from then on, and the node goes on.
func TestSinkThatPanics(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	lead(t, n)
	called := make(chan struct{})
	sink := millrace.NewSink(2, func([]millrace.Completion[int64]) {
		close(called)
		panic("boom")
	})
	if taken, err := n.SubmitMany([]int64{1}, []uint64{1}, sink); taken != 1 || err != nil {
		t.Fatal(taken, err)
	}
	<-called
	if got, err := n.Propose(t.Context(), 1); got != 2 || err != nil {
		t.Fatal(got, err)
	}
	if taken, err := n.SubmitMany([]int64{1}, []uint64{1}, sink); taken != 0 || err == nil || !strings.Contains(err.Error(), "it panicked: boom") {
		t.Error(taken, err)
	}
	if err := n.SubmitRead(1, millrace.Local, sink); err == nil || !strings.Contains(err.Error(), "make another sink") {
		t.Error(err)
	}
}

// The body of a loop over Subscribe that panics ends its subscription, and nothing else.
func TestSubscriberThatPanics(t *testing.T) {
	n := open(t, alone(t), announcers(1))
	lead(t, n)
	if _, err := n.Propose(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		for range n.Subscribe(t.Context(), millrace.Bookmark{}) {
			panic("boom")
		}
	}()
	if got, err := n.Propose(t.Context(), 1); got != 2 || err != nil || n.Metrics().Published.Subscribers != 0 {
		t.Error(got, err, n.Metrics().Published)
	}
}
