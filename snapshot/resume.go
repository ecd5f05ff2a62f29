package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace/millrace/vfs"
)

// What the disk has of an offer already: from an earlier receive of the same snapshot, which goes on, and
// from other snapshots of the store, whose equal parts are linked.

// begin makes the directory, or takes over what is in it.
func (r *Receiver) begin(ctx context.Context) error {
	s := r.store
	s.mu.Lock()
	known := s.unfinished[r.id] != nil
	delete(s.damaged, r.id)
	s.mu.Unlock()
	if !known {
		if err := s.removeDir(r.id); err != nil {
			return err
		}
	}
	if err := s.fs.MkdirAll(r.dir); err != nil {
		return err
	}
	if err := r.writeOffer(); err != nil {
		return r.fail(err)
	}
	s.mu.Lock()
	s.unfinished[r.id] = r.m
	delete(s.leftover, r.id)
	s.mu.Unlock()
	if err := r.takeOver(); err != nil {
		return err
	}
	if err := r.scan(ctx); err != nil {
		return err
	}
	need := r.m.Bytes() - r.have
	if free, err := vfs.FreeBytes(s.fs, r.dir); err == nil && free < need {
		return &SpaceError{ID: r.id, Need: need, Free: free}
	}
	r.removeOthers()
	return nil
}

// writeOffer makes the offer durable, unless it is there. Blocks that another offer left in this directory
// are checked against this one like all others.
func (r *Receiver) writeOffer() error {
	fsys, name := r.store.fs, filepath.Join(r.dir, offerFile)
	same, err := sameBytes(fsys, name, r.offer)
	if err != nil {
		return err
	}
	if !same {
		if err := writeDraft(fsys, r.dir, offerFile, r.offer); err != nil {
			return err
		}
		if err := fsys.Rename(filepath.Join(r.dir, offerFile+draftSuffix), name); err != nil {
			return err
		}
	}
	return fsys.SyncDir(r.dir)
}

// takeOver links the parts that other snapshots of the store have: published ones, and complete parts of
// unfinished receives. scan checks their content.
func (r *Receiver) takeOver() error {
	s := r.store
	type content struct {
		bytes int64
		sum   [sha256.Size]byte
	}
	wanted := map[content]bool{}
	for i := range r.m.Parts {
		wanted[content{r.m.Parts[i].Bytes, r.m.Parts[i].SHA256}] = true
	}
	files := map[content]string{}
	s.mu.Lock()
	var sources []*Manifest
	for _, id := range sortedIDs(s.unfinished) {
		if id != r.id {
			sources = append(sources, s.unfinished[id])
		}
	}
	for _, id := range sortedIDs(s.published) { // the newest published one comes last, and wins
		sources = append(sources, s.published[id].manifest)
	}
	s.mu.Unlock()
	for _, m := range sources {
		for i := range m.Parts {
			if c := (content{m.Parts[i].Bytes, m.Parts[i].SHA256}); wanted[c] {
				files[c] = filepath.Join(s.path(m.ID()), partFile(i))
			}
		}
	}
	for i := range r.m.Parts {
		from := files[content{r.m.Parts[i].Bytes, r.m.Parts[i].SHA256}]
		if from == "" {
			continue
		}
		// A part that this directory has already, a source that is gone or not complete, a filesystem without
		// links: the blocks then come from the sender.
		err := s.fs.Link(from, filepath.Join(r.dir, partFile(i)))
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// scan finds out which blocks are there, and removes every file that is of no use.
func (r *Receiver) scan(ctx context.Context) error {
	names, err := r.store.fs.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, name := range names { // sorted: part-N comes before recv-N
		useful, err := r.scanFile(ctx, name)
		if err != nil {
			return err
		}
		if useful {
			continue
		}
		if err := r.store.fs.Remove(filepath.Join(r.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Receiver) scanFile(ctx context.Context, name string) (useful bool, err error) {
	if name == offerFile {
		return true, nil
	}
	_, number, _ := strings.Cut(name, "-")
	i, err := strconv.Atoi(number)
	switch {
	case err != nil || i < 0 || i >= len(r.parts):
		return false, nil
	case name == partFile(i):
		err = verifyFile(ctx, r.store.fs, filepath.Join(r.dir, name), r.m, i)
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
			return false, nil
		}
		if err == nil {
			r.markWhole(i)
		}
		return true, err
	case name == recvFile(i) && !r.parts[i].whole:
		return r.scanReceived(ctx, i)
	}
	return false, nil
}

// scanReceived reads what an earlier Receiver left of a part. It writes the blocks that are right once more:
// a sync that failed then may have left them in memory only, and marked as written.
func (r *Receiver) scanReceived(ctx context.Context, i int) (useful bool, err error) {
	f, err := r.store.fs.Open(filepath.Join(r.dir, recvFile(i)))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := &r.m.Parts[i]
	size, err := f.Size()
	if err != nil || size > p.Bytes {
		return false, err
	}
	r.setBegun(i)
	buf := make([]byte, BlockBytes)
	for b := range p.Blocks() {
		if err := ctx.Err(); err != nil {
			return true, context.Cause(ctx)
		}
		piece := buf[:p.blockBytes(b)]
		if readBlock(f, p, b, piece) != nil {
			continue // a block that was not written, or cannot be read: it is missing
		}
		if _, err := f.WriteAt(piece, b*BlockBytes); err != nil {
			return true, err
		}
		r.mark(i, b, 1)
		if err := r.syncPaced(i, len(piece)); err != nil {
			return true, err // the next Receive writes all blocks again
		}
	}
	return true, nil
}

// removeOthers removes the other unfinished receives: what they had of use is linked. What cannot be removed
// is a leftover, which Prune tries again.
func (r *Receiver) removeOthers() {
	s := r.store
	s.mu.Lock()
	var others []ID
	for _, id := range sortedIDs(s.unfinished) {
		if id != r.id && !s.busy[id] {
			s.condemn(id)
			others = append(others, id)
		}
	}
	s.mu.Unlock()
	for _, id := range others {
		_ = s.execute(id)
	}
}
