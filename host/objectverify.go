package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
)

// VerifyObject reads all that this host has of an object, and compares it with its checksums. The error is a
// *snapshot.DamageError if something is wrong: then this host fetches the object again, from another member.
// Without this, damage is found when the object is read. The error wraps files.ErrNotHere if this member does
// not have the object, and ErrNoObjects if the group has none. It is safe for concurrent use.
func (g *Group) VerifyObject(ctx context.Context, id object.ID) error {
	o := &g.machine.objects
	switch {
	case !o.on:
		return ErrNoObjects
	case g.Err() != nil:
		return wrap(ErrStopped, g.Err())
	}
	err := o.files.Verify(ctx, id)
	if snapshots.IsDamage(err) {
		g.host.env.logger.Warn("an object is damaged, and is fetched", "group", g.id, "host", g.self, "object", id.String(), "err", err)
		o.damaged(id)
	}
	return err
}

// VerifyObject implements admin.Host. It verifies the first object after an id.
func (a administered) VerifyObject(ctx context.Context, group uint64, after string) (of admin.Object, err error) {
	var last object.ID
	if after != "" {
		if last, err = object.ParseID(after); err != nil {
			return of, err
		}
	}
	g, err := a.group(group)
	if err != nil || !g.machine.objects.on {
		return of, err
	}
	rest := slices.DeleteFunc(g.machine.objects.files.List(), func(i files.Info) bool { return bytes.Compare(i.ID[:], last[:]) <= 0 })
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
