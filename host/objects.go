package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
)

const defaultObjectReserve = 256 << 20

func objectsDir(hostDir string, group uint64) string {
	return filepath.Join(identity.GroupDir(hostDir, group), "objects")
}

// Objects is how a state machine uses the objects of its group (ObjectUser). All methods are safe for
// concurrent use.
type Objects struct{ of *objects.Keeper }

// ObjectUser is a CommandMachine in a group with objects that keeps some of them. UseObjects is called once,
// by OpenGroup, before anything is applied or restored.
type ObjectUser interface{ UseObjects(*Objects) }

// Keep makes a set stay until it is released, although its life passes. It must be called in Apply, by the
// command that decides it: what is kept must depend on the commands alone. The error says why the set cannot
// be kept, and is the same on all members: there is none with this id, or no quorum holds it.
func (s *Objects) Keep(id object.ID) error { return s.of.Keep(id) }

// Release makes a set go when its life has passed once more, unless a command keeps it before that. The rules
// are those of Keep.
func (s *Objects) Release(id object.ID) error { return s.of.Release(id) }

// Open opens a set on this host's disk. Within Apply the sets that the command names are there. Elsewhere
// files.ErrNotHere means that this member does not have it (yet). Close the file: until then its bytes stay.
func (s *Objects) Open(id object.ID) (*files.File, error) { return s.of.Files().OpenFile(id) }

// Objects returns the objects of the group as this host has applied them, in the order of their opening. It
// is safe for concurrent use.
func (g *Group) Objects() []object.Set { return g.machine.objects.All() }

// OpenObject opens an object for reading on this host. files.ErrNotHere means that this member does not have
// it (yet); ErrNoObjects that the group has none. Close the file: until then its bytes stay. It is safe for
// concurrent use.
func (g *Group) OpenObject(id object.ID) (*files.File, error) {
	if g.machine.objects == nil {
		return nil, outcome.ErrNoObjects
	}
	return g.machine.objects.Files().OpenFile(id)
}

// VerifyObject reads all that this host has of an object, and compares it with its checksums. The error is a
// *snapshot.DamageError if something is wrong: then this host fetches the object again, from another member.
// Without this, damage is found when the object is read. The error wraps files.ErrNotHere if this member does
// not have the object, and ErrNoObjects if the group has none. It is safe for concurrent use.
func (g *Group) VerifyObject(ctx context.Context, id object.ID) error {
	k := g.machine.objects
	switch {
	case k == nil:
		return outcome.ErrNoObjects
	case g.Err() != nil:
		return outcome.WithCause(outcome.ErrStopped, g.Err())
	}
	err := k.Files().Verify(ctx, id)
	if snapshots.IsDamage(err) {
		g.host.env.logger.Warn("an object is damaged, and is fetched", "group", g.id, "host", g.self, "object", id.String(), "err", err)
		k.Damaged(id)
	}
	return err
}

// VerifyObject implements admin.Host. It verifies the first object after an id.
func (a adminPort) VerifyObject(ctx context.Context, group uint64, after string) (of admin.Object, err error) {
	var last object.ID
	if after != "" {
		if last, err = object.ParseID(after); err != nil {
			return of, err
		}
	}
	g, err := a.group(group)
	if err != nil || g.machine.objects == nil {
		return of, err
	}
	rest := slices.DeleteFunc(g.machine.objects.Files().List(), func(i files.Info) bool { return bytes.Compare(i.ID[:], last[:]) <= 0 })
	if len(rest) == 0 {
		return of, nil
	}
	of = admin.Object{ID: rest[0].ID.String(), Bytes: rest[0].Bytes}
	for _, i := range rest[1:] {
		of.Left += i.Bytes
	}
	switch err = g.VerifyObject(ctx, rest[0].ID); {
	case snapshots.IsDamage(err):
		of.Damage, err = fmt.Sprintf("%.1000s", err.Error()), nil
	case errors.Is(err, files.ErrNotHere): // it has gone meanwhile
		err = nil
	}
	return of, err
}

// ObjectMetrics are about the large objects of a group on this host.
type ObjectMetrics struct {
	Sets  int   // in the table, as far as this host has applied
	Bytes int64 // of their contents
	// Unheld are sets that no quorum is known to have. Lacking are sets that this host does not have.
	Unheld, Lacking int
	// Files are sets of which something is on this host's disk. Ended are sets that have gone. Their files,
	// if there are any, stay until the log behind their end is gone. Strays are files of neither kind: what
	// the disk had at the start stays until the log of that moment is applied.
	Files, Ended, Strays int
	Uploads              int           // that are under way on this host
	Waits                uint64        // the entry at which the state machine waits for an object; 0: it does not
	LogTime              time.Duration // of the table
}
