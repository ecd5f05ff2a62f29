package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// fake is a host whose group 7 has an archive of many bytes.
type fake struct {
	content []byte
	failure error
	begun   chan struct{} // an export or a take has begun
	ended   chan error    // and ended
	hold    bool          // until its context ends
}

func newFake() *fake {
	return &fake{content: bytes.Repeat([]byte("an archive "), 300_000), begun: make(chan struct{}, 100), ended: make(chan error, 100)}
}

func (f *fake) Status(group uint64) (Status, error) {
	s := Status{Host: 3, Cluster: 1 << 60, Groups: []Group{}}
	for id := uint64(1); id <= 250; id++ {
		if group == 0 || group == id {
			s.Groups = append(s.Groups, Group{Group: id, Role: "follower", Stopped: strings.Repeat("\u2028", 100), Snapshot: &Snapshot{1 << 62, 1 << 62, 1 << 62}})
		}
	}
	return s, nil
}

func (f *fake) TakeSnapshot(ctx context.Context, group uint64) (Snapshot, error) {
	f.begun <- struct{}{}
	if f.hold {
		<-ctx.Done()
		f.ended <- ctx.Err()
	}
	return Snapshot{5, 2, 70}, f.failure
}

func (f *fake) Export(ctx context.Context, group uint64, local bool, w io.Writer) (Snapshot, error) {
	f.begun <- struct{}{}
	_, err := w.Write(f.content)
	if err == nil && f.hold {
		<-ctx.Done()
		err = ctx.Err()
	}
	f.ended <- err
	return Snapshot{5, 2, int64(len(f.content))}, errors.Join(err, f.failure)
}

func (f *fake) DumpFlight(_ context.Context, group uint64) (Flight, error) {
	return Flight{Path: fmt.Sprintf("/flight/%d", group)}, f.failure
}

// directory is a short one: a path of a socket is bounded.
func directory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func serve(t testing.TB, h Host, idle, taken time.Duration) (dir string, s *Server) {
	t.Helper()
	dir = directory(t)
	s, err := listenFor(dir, h, slog.New(slog.DiscardHandler), idle, taken)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, s
}

func dial(t testing.TB, dir string) *Client {
	t.Helper()
	c, err := Dial(t.Context(), filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Only the owner can open the socket. One that a process has left is replaced, and Close leaves none.
func TestSocketInItsDirectory(t *testing.T) {
	dir := directory(t)
	left, err := net.Listen("unix", filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(left.Close(), os.MkdirAll(filepath.Join(dir, ".a", "s"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := Listen(dir, newFake(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(filepath.Join(dir, SocketName))
		if err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if _, err := dial(t, dir).TakeSnapshot(t.Context(), 7); err != nil {
			t.Error(err)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
			t.Errorf("%v, %v", names, err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
			t.Errorf("Close leaves %v, %v", names, err)
		}
	}
	long := filepath.Join(dir, strings.Repeat("x", 100))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(long, newFake(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "a shorter Config.Dir") {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), filepath.Join(dir, SocketName)); err == nil {
		t.Error("there is nothing to connect to")
	}
}

// A client gets what the host says, several times over one connection.
func TestClient(t *testing.T) {
	f := newFake()
	dir, _ := serve(t, f, time.Minute, time.Minute)
	c := dial(t, dir)
	for range 2 {
		if s, err := c.Status(t.Context(), 9); err != nil || s.Host != 3 || len(s.Groups) != 1 || s.More != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err := c.Status(t.Context(), 0); err != nil || len(s.Groups) < maxStatusGroups/4 || len(s.Groups)+s.More != 250 {
			t.Errorf("%d groups and %d more, %v", len(s.Groups), s.More, err)
		}
		if s, err := c.TakeSnapshot(t.Context(), 7); err != nil || s != (Snapshot{5, 2, 70}) {
			t.Errorf("%+v, %v", s, err)
		}
		if f, err := c.DumpFlight(t.Context(), 0); err != nil || f.Path != "/flight/0" {
			t.Errorf("%+v, %v", f, err)
		}
		if o, err := c.VerifyObject(t.Context(), 7, ""); err != nil || o != (Object{"last", 7, "a block is wrong", 9}) {
			t.Errorf("%+v, %v", o, err)
		}
		if o, err := c.VerifyObject(t.Context(), 7, "last"); err != nil || o != (Object{}) {
			t.Errorf("%+v, %v", o, err)
		}
		var got bytes.Buffer
		if s, err := c.Export(t.Context(), 7, true, &got); err != nil || s.Bytes != int64(got.Len()) || !bytes.Equal(got.Bytes(), f.content) {
			t.Errorf("%+v and %d bytes, %v", s, got.Len(), err)
		}
	}
}

// What goes wrong on the host reaches the client, also behind all the bytes of an archive.
func TestErrorsReachTheClient(t *testing.T) {
	f := newFake()
	f.failure = errors.New("the disk is full")
	dir, _ := serve(t, f, time.Minute, time.Minute)
	c := dial(t, dir)
	refused := (*RemoteError)(nil)
	if _, err := c.TakeSnapshot(t.Context(), 7); !errors.As(err, &refused) || refused.Text != "the disk is full" {
		t.Error(err)
	}
	if _, err := c.Export(t.Context(), 7, true, io.Discard); !errors.As(err, &refused) {
		t.Error(err)
	}
	f = newFake()
	f.failure = errors.New(strings.Repeat("\x01", 1<<20))
	dir, _ = serve(t, f, time.Minute, time.Minute)
	if _, err := dial(t, dir).TakeSnapshot(t.Context(), 7); !errors.As(err, &refused) {
		t.Error(err)
	}
}

// A request that is wrong gets a sentence, and the connection ends.
func TestWrongRequests(t *testing.T) {
	dir, _ := serve(t, newFake(), time.Minute, time.Minute)
	for line, want := range map[string]string{
		"":                                     "no request",
		"{":                                    "no request",
		"take 7":                               "no request",
		`{"do":"take","group":-1}`:             "no request",
		`{"do":"take","group":7,"force":1}`:    "unknown field",
		`{"do":"take","group":7}{}`:            "something follows",
		`{"do":"remove","group":7}`:            `called "remove"; want one of status, take, export, verify-object, flight`,
		`{"do":"take"}`:                        "take needs a group",
		`{"do":"take","group":7,"local":true}`: "local is for export",
		strings.Repeat("x", maxLineBytes+1):    "more than 65536 bytes",
	} {
		c, err := net.Dial("unix", filepath.Join(dir, SocketName))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(c) // until the server ends it
		var a answer
		if err != nil || json.Unmarshal(all, &a) != nil || !strings.Contains(a.Error, want) {
			t.Errorf("%.60q: %q, %v; want %q", line, all, err, want)
		}
		c.Close()
	}
}

// What a client does not wait for, or does not take, is given up, and so is everything at Close.
func TestConnectionsEnd(t *testing.T) {
	t.Run("nothing is asked for", func(t *testing.T) {
		dir, _ := serve(t, newFake(), 10*time.Millisecond, time.Minute)
		if all, err := io.ReadAll(dial(t, dir).conn); err != nil || !bytes.Contains(all, []byte("nothing was asked for in 10ms")) {
			t.Errorf("%q, %v", all, err)
		}
	})
	t.Run("the client goes", func(t *testing.T) {
		f := newFake()
		f.hold = true
		dir, _ := serve(t, f, time.Minute, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-f.begun; cancel() }()
		if _, err := dial(t, dir).TakeSnapshot(ctx, 7); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-f.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("the client does not read", func(t *testing.T) {
		f := newFake()
		dir, _ := serve(t, f, time.Minute, 20*time.Millisecond)
		if _, err := io.WriteString(dial(t, dir).conn, `{"do":"export","group":7}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := <-f.ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
	t.Run("the host is closed", func(t *testing.T) {
		f := newFake()
		f.hold = true
		dir, s := serve(t, f, time.Minute, time.Minute)
		go func() {
			<-f.begun
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := dial(t, dir).Export(t.Context(), 7, false, io.Discard); err == nil {
			t.Error("half an archive counts as a whole one")
		}
	})
}

// One connection more than the host serves is told so.
func TestTooManyConnections(t *testing.T) {
	dir, _ := serve(t, newFake(), time.Minute, time.Minute)
	for range maxConnections {
		if _, err := dial(t, dir).Status(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, dir)
	line, err := bufio.NewReader(c.conn).ReadString('\n')
	if err != nil || !strings.Contains(line, fmt.Sprintf("%d programs are connected", maxConnections)) {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := dial(t, dir).Status(t.Context(), 1); err == nil {
		t.Error("it is served")
	}
}

// FuzzRequest: a line that is a request is one that a client sends.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"do":"export","group":7,"local":true}`))
	f.Add([]byte(`{"do":"status"}`))
	f.Add([]byte(`{"do":"take","group":18446744073709551615}`))
	f.Add([]byte(`{"do":"plan","group":1,"changes":[{"op":"add","id":4,"addr":"a:1"},{"op":"remove","id":1}]}`))
	f.Add([]byte(`{"do":"execute","group":1,"plan":"5d0f3e8a","seen":"plan 5d0f3e8a, 1 of 2 stages done"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decodeRequest(line)
		if err != nil {
			return
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeRequest(b)
		if once, _ := json.Marshal(again); err != nil || !bytes.Equal(once, b) {
			t.Errorf("%q is %+v, and sent again %+v, %v", line, r, again, err)
		}
	})
}

func (f *fake) VerifyObject(ctx context.Context, group uint64, after string) (Object, error) {
	if after == "last" {
		return Object{}, f.failure
	}
	return Object{ID: "last", Bytes: int64(group), Damage: "a block is wrong", Left: 9}, f.failure
}

func (f *fake) Members(group uint64) (Members, error) {
	m := Members{Host: 3, Group: group, Founded: true, Members: []Member{}}
	for id := uint64(1); id <= 1000; id++ {
		m.Members = append(m.Members, Member{ID: id, Role: "voter", Addr: strings.Repeat("a", 200)})
	}
	return m, f.failure
}

func (f *fake) Plan(_ context.Context, group uint64, changes []Change) (Plan, error) {
	return Plan{ID: "5d0f", Group: group, Text: fmt.Sprint(changes)}, f.failure
}

func (f *fake) Execute(ctx context.Context, group uint64, id, seen string) (Progress, error) {
	if f.hold {
		f.begun <- struct{}{}
		<-ctx.Done()
		f.ended <- ctx.Err()
	}
	return Progress{Plan: id, Done: seen == "begun", State: "begun"}, f.failure
}

func (f *fake) Cancel(_ context.Context, _ uint64, id string) (Progress, error) {
	return Progress{Plan: id, Done: true, Refused: "cancelled"}, f.failure
}

func (f *fake) SetPeer(uint64, string) error { return f.failure }

func (f *fake) AcceptKey(uint64) error { return f.failure }

func (f *fake) Upgrade(_ context.Context, group uint64, to uint32) (Upgrade, error) {
	return Upgrade{Group: group, Version: to, Since: 9}, f.failure
}

func (f *fake) Skip(_ context.Context, group uint64, at raftpb.Position, yes bool) (Skip, error) {
	return Skip{Group: group, Index: at.Index, Pos: at.Pos, Done: yes}, f.failure
}

func (f *fake) JoinToken(_ context.Context, _, member uint64, life time.Duration, learner bool) (Token, error) {
	return Token{Text: fmt.Sprint(member, life, learner)}, f.failure
}

// What is about members: asked and answered, and refused where it makes no sense.
func TestMembersOverTheSocket(t *testing.T) {
	f := newFake()
	dir, _ := serve(t, f, time.Minute, time.Minute)
	c, err := Dial(t.Context(), filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Members(t.Context(), 7)
	if err != nil || m.Group != 7 || len(m.Members) == 0 || len(m.Members)+m.More != 1000 {
		t.Errorf("%d members and %d more, %v", len(m.Members), m.More, err)
	}
	p, err := c.Plan(t.Context(), 7, []Change{{Op: OpAdd, ID: 4, Addr: "a:1"}, {Op: OpRemove, ID: 1}})
	if err != nil || p.Text != "[{add 4 a:1} {remove 1 }]" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, seen := range []string{"", "begun"} {
		if w, err := c.Execute(t.Context(), 7, p.ID, seen); err != nil || w.Done != (seen == "begun") {
			t.Errorf("seen %q: %+v, %v", seen, w, err)
		}
	}
	if w, err := c.Cancel(t.Context(), 7, p.ID); err != nil || w.Refused != "cancelled" {
		t.Errorf("%+v, %v", w, err)
	}
	if k, err := c.JoinToken(t.Context(), 1, 4, time.Minute, true); err != nil || k.Text != "4 1m0s true" {
		t.Errorf("token %q, %v", k.Text, err)
	}
	if err := c.AcceptKey(t.Context(), 3); err != nil {
		t.Error(err)
	}
	if s, err := c.Skip(t.Context(), 7, raftpb.Position{Index: 5, Pos: 3}, true); err != nil || s != (Skip{Group: 7, Index: 5, Pos: 3, Done: true}) {
		t.Errorf("%+v, %v", s, err)
	}
	if err := c.SetPeer(t.Context(), 4, "a:2"); err != nil {
		t.Error(err)
	}
	for line, want := range map[string]string{
		`{"do":"members"}`:                                "needs a group",
		`{"do":"skip","group":1}`:                         "an index is for skip",
		`{"do":"cancel","group":1,"plan":"a","yes":true}`: "yes is for skip",
		`{"do":"plan","group":1}`:                         "plan has 0 changes",
		`{"do":"execute","group":1}`:                      "a plan is for execute and cancel",
		`{"do":"members","group":1,"plan":"5d0f"}`:        "a plan is for execute and cancel",
		`{"do":"status","changes":[{"op":"add","id":1}]}`: "changes are for plan",
		`{"do":"cancel","group":1,"plan":"5","seen":"x"}`: "seen is for execute",
		`{"do":"address","id":4}`:                         "needs an id and an addr",
		`{"do":"status","id":4}`:                          "id is for address, accept-key and token",
	} {
		if _, err := decodeRequest([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	f.failure = errors.New("no such group")
	if _, err := c.Members(t.Context(), 7); err == nil || !strings.Contains(err.Error(), "no such group") {
		t.Error(err)
	}
}

// A program that goes away ends the watching.
func TestAWatcherGoes(t *testing.T) {
	f := newFake()
	f.hold = true
	dir, _ := serve(t, f, time.Minute, time.Minute)
	c, err := Dial(t.Context(), filepath.Join(dir, SocketName))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.begun
		cancel()
	}()
	if _, err := c.Execute(ctx, 7, "5d0f", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("the watcher ends with %v", err)
	}
	if err := <-f.ended; err == nil {
		t.Error("the host was not told")
	}
}
