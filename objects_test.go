package millrace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/object"
)

// album is a state machine that keeps the objects that its commands name, and releases those of a command
// "drop".
type album struct {
	ledger
	objects *millrace.Objects
	seen    chan string // the content of each object that was named; nil: it is not read
}

func (a *album) UseObjects(o *millrace.Objects) { a.objects = o }

func (a *album) Apply(batch []millrace.Command[[]byte], results []uint64) error {
	for _, c := range batch {
		for _, id := range c.Objects {
			change := a.objects.Keep
			if string(c.Value) == "drop" {
				change = a.objects.Release
			}
			f, err := a.objects.Open(id)
			if err = errors.Join(err, change(id)); err != nil {
				return err
			}
			content, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			if a.seen != nil {
				a.seen <- string(content)
			}
		}
	}
	return a.ledger.Apply(batch, results)
}

func albums(t *testing.T, o func(id uint64) millrace.ObjectOptions) (*trio[[]byte, uint64], map[uint64]*album) {
	all := map[uint64]*album{}
	return three(t, func(id uint64) millrace.Machine[[]byte, uint64] {
		all[id] = &album{seen: make(chan string, 16)}
		return millrace.InMemory(all[id], millrace.Bytes()).Objects(o(id))
	}), all
}

// An object that was uploaded on any member is on every member when a command that names it is applied there.
// When it is released it goes everywhere.
func TestObjectsReachAllMembers(t *testing.T) {
	c, machines := albums(t, func(uint64) millrace.ObjectOptions { return millrace.ObjectOptions{} })
	rng := rand.NewChaCha8([32]byte{1})
	for i, n := range c.nodes {
		content := make([]byte, 100_000*(i+1))
		if _, err := rng.Read(content); err != nil {
			t.Fatal(err)
		}
		var written int64
		o, err := n.Upload(t.Context(), bytes.NewReader(content), millrace.UploadOptions{Life: time.Second, Progress: func(n int64) { written = n }})
		if err != nil || o.Bytes != int64(len(content)) || written != o.Bytes || len(o.Holders) < 2 {
			t.Fatalf("%+v, %d written, %v", o, written, err)
		}
		if _, err := c.nodes[(i+1)%3].Propose(t.Context(), []byte("keep"), millrace.WithObjects(o.ID)); err != nil {
			t.Fatal(err)
		}
		for id, m := range machines {
			if have := <-m.seen; have != string(content) {
				t.Errorf("the machine of member %d has read %d other bytes", id, len(have))
			}
		}
		if _, err := n.Propose(t.Context(), []byte("drop"), millrace.WithObjects(o.ID)); err != nil {
			t.Fatal(err)
		}
		for id, m := range machines {
			if have := <-m.seen; have != string(content) {
				t.Errorf("the machine of member %d has read %d other bytes", id, len(have))
			}
		}
	}
	for _, n := range c.nodes {
		for n.Metrics().Objects.Sets > 0 { // the leader says the time, and no client does
			if err := n.Err(); err != nil {
				t.Fatal(err)
			}
			_, _ = n.Read(t.Context(), millrace.Linearizable)
		}
	}
	commands := map[any]bool{} // the log has one twice, if its leader was asked again
	for e, err := range c.nodes[0].Log(t.Context(), 1, c.nodes[0].Status().Applied+1) {
		if err != nil || string(e.Value) != "keep" && string(e.Value) != "drop" || len(e.Objects) != 1 {
			t.Errorf("the log has %+v, %v", e, err)
		}
		commands[[2]any{string(e.Value), e.Objects[0]}] = true
	}
	if len(commands) != 6 {
		t.Errorf("the log has the commands %v, want 6", commands)
	}
}

// An upload whose reader fails, or whose context ends, leaves nothing.
func TestUploadsThatFailLeaveNothing(t *testing.T) {
	c, _ := albums(t, func(uint64) millrace.ObjectOptions { return millrace.ObjectOptions{} })
	broken := errors.New("the client is gone")
	if _, err := c.nodes[0].Upload(t.Context(), io.MultiReader(strings.NewReader("half"), failing{broken}), millrace.UploadOptions{}); !errors.Is(err, broken) || millrace.MayHaveCommitted(err) {
		t.Errorf("a reader that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := c.nodes[0].Upload(ctx, io.MultiReader(strings.NewReader("half"), ending{cancel}), millrace.UploadOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ends: %v", err)
	}
	if _, err := c.nodes[0].Upload(t.Context(), strings.NewReader("too long"), millrace.UploadOptions{MaxBytes: 3}); err == nil || !strings.Contains(err.Error(), "more than 3 bytes") {
		t.Errorf("an object that is too large: %v", err)
	}
	if m := c.nodes[0].Metrics().Objects; m.Files+m.Sets+m.Uploads > 0 {
		t.Errorf("something is left: %+v", m)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

type ending struct{ end func() }

func (e ending) Read(b []byte) (int, error) {
	e.end()
	return copy(b, "half"), nil
}

// What produces the errors of objects (TestEveryError).

func noObjects(t *testing.T, c *trio[[]byte, uint64]) error {
	_, err := c.nodes[0].Upload(t.Context(), strings.NewReader("content"), millrace.UploadOptions{})
	return err
}

func oneAlbum(t *testing.T, o millrace.ObjectOptions) *millrace.Node[[]byte, uint64] {
	return open(t, alone(t), millrace.InMemory(&album{}, millrace.Bytes()).Objects(o))
}

func objectUnknown(t *testing.T, _ *trio[[]byte, uint64]) error {
	_, err := oneAlbum(t, millrace.ObjectOptions{}).Propose(t.Context(), nil, millrace.WithObjects(millrace.ObjectID{7}))
	return err
}

func objectRefused(t *testing.T, _ *trio[[]byte, uint64]) error {
	_, err := oneAlbum(t, millrace.ObjectOptions{}).Propose(t.Context(), nil, millrace.WithObjects(make([]millrace.ObjectID, object.MaxNames+1)...))
	return err
}

func objectSpace(t *testing.T, _ *trio[[]byte, uint64]) error {
	_, err := oneAlbum(t, millrace.ObjectOptions{ReserveBytes: 1 << 60}).Upload(t.Context(), strings.NewReader("content"), millrace.UploadOptions{})
	return err
}

func objectNotHere(t *testing.T, _ *trio[[]byte, uint64]) error {
	_, err := oneAlbum(t, millrace.ObjectOptions{}).OpenObject(millrace.ObjectID{7})
	return err
}

// objectNotHeld names an object that two of three members have no space for.
func objectNotHeld(t *testing.T, _ *trio[[]byte, uint64]) error {
	c, _ := albums(t, func(id uint64) millrace.ObjectOptions {
		if id == 1 {
			return millrace.ObjectOptions{}
		}
		return millrace.ObjectOptions{ReserveBytes: 1 << 60}
	})
	g := c.nodes[0].Host().Group(1)
	var u *host.Upload
	for opened := false; !opened; opened = len(g.Objects()) > 0 {
		if u != nil { // a leader that stopped leading may have lost the last one
			if _, failed, err := u.Poll(); !failed {
				continue
			} else if !errors.Is(err, outcome.ErrDropped) {
				t.Fatal(err)
			}
		}
		var err error
		if u, err = g.StartUpload(millrace.UploadOptions{}); err == nil {
			err = u.Finish()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.nodes[1].Propose(t.Context(), nil, millrace.WithObjects(u.ID()))
	return err
}
