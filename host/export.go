package host

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/snapshot"
)

// Export writes a backup of the group to w, as one archive (snapshot/archive.go). The archive has
// everything that this member had applied before the call, and nothing that is not durable. Export takes a
// snapshot, unless the latest one has all of that, and keeps it from being removed while it is written. The
// log is not in the archive. The group goes on meanwhile; a slow w holds nothing but the disk space of that
// snapshot.
//
// To have everything that was acknowledged, call it on a member that has read linearizably, or wait for its
// Status().Applied. rescue.Restore makes a new cluster of it. Errors are those of TakeSnapshot and of w,
// and a *snapshot.DamageError; what was written is no archive then. It is safe for concurrent use, but must
// not be called by the state machine.
func (g *Group) Export(ctx context.Context, w io.Writer) (_ SnapshotInfo, err error) {
	if w == nil {
		return SnapshotInfo{}, fmt.Errorf("millrace: Export of group %d needs a writer", g.id)
	}
	r, err := g.openExport(ctx)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	m := r.Manifest()
	info := SnapshotInfo{Index: m.Index, Term: m.Term, Bytes: m.Bytes()}
	if _, err := r.WriteArchive(ctx, w); err != nil {
		return info, fmt.Errorf("millrace: export of group %d: %w", g.id, err)
	}
	return info, nil
}

// maxExportTries bounds how often a newer snapshot may take the place of the one to open.
const maxExportTries = 8

// openExport opens a snapshot that includes what was applied before the call.
func (g *Group) openExport(ctx context.Context) (*snapshot.Reader, error) {
	var last error
	for range maxExportTries {
		info, err := g.TakeSnapshot(ctx)
		if err != nil {
			return nil, err
		}
		store, err := g.snapshots.Store()
		if err != nil {
			return nil, err
		}
		r, err := store.Open(snapshot.ID{Index: info.Index, Term: info.Term})
		if err == nil {
			return r, nil
		}
		if last = err; !errors.Is(err, snapshot.ErrNotFound) {
			break
		}
		// A newer one was published, and this one removed. The next call returns the newer one, or takes
		// another.
	}
	return nil, fmt.Errorf("millrace: export of group %d: %w", g.id, last)
}
