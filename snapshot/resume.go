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
// from other snapshots, of this store and of others, whose equal parts are linked.

// begin makes the directory, or takes over what is in it.
func (r *Receiver) begin(ctx context.Context, further []Source) error {
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
	if err := s.makeDir(r.id); err != nil {
		return err
	}
	var err error
	if r.names, err = s.fs.OpenDir(r.dir); err != nil {
		return err
	}
	if err := r.writeOffer(); err != nil {
		return err
	}
	s.mu.Lock()
	s.unfinished[r.id] = r.m
	delete(s.leftover, r.id)
	s.mu.Unlock()
	if err := r.linkParts(further); err != nil {
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
// are checked against this one like all others. Before the rename an error puts nothing in doubt.
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
			return r.fail(err)
		}
	}
	if err := r.names.Sync(); err != nil {
		return r.fail(err)
	}
	return nil
}

// contentSum is what makes parts equal (Part.sameContent), whatever they are called.
type contentSum struct {
	bytes int64
	sum   [sha256.Size]byte
}

func (p *Part) contentSum() contentSum { return contentSum{p.Bytes, p.SHA256} }

// linkParts links the parts that other snapshots have. scan checks their content.
func (r *Receiver) linkParts(further []Source) error {
	files := r.equalParts(further)
	for i := range r.m.Parts {
		from := files[r.m.Parts[i].contentSum()]
		if from == "" {
			continue
		}
		// A part that this directory has already, a source that is gone or not complete, a filesystem without
		// links: the blocks then come from the sender.
		err := r.store.fs.Link(from, filepath.Join(r.dir, partFile(i)))
		if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// equalParts returns the files of other snapshots that have the content of a part of the offer. What comes
// last wins: complete parts of unfinished receives, which may be missing, come before the further sources,
// and the published snapshots of this store after them, the newest one last.
func (r *Receiver) equalParts(further []Source) map[contentSum]string {
	s := r.store
	wanted, files := map[contentSum]bool{}, map[contentSum]string{}
	for i := range r.m.Parts {
		wanted[r.m.Parts[i].contentSum()] = true
	}
	note := func(of *Store, m *Manifest, lo, hi int) {
		for i := lo; i < hi; i++ {
			if c := m.Parts[i].contentSum(); wanted[c] {
				files[c] = filepath.Join(of.path(m.ID()), partFile(i))
			}
		}
	}
	s.mu.Lock()
	var unfinished, published []*Manifest
	for _, id := range sortedIDs(s.unfinished) {
		if id != r.id {
			unfinished = append(unfinished, s.unfinished[id])
		}
	}
	for _, id := range sortedIDs(s.published) {
		published = append(published, s.published[id].manifest)
	}
	s.mu.Unlock()
	for _, m := range unfinished {
		note(s, m, 0, len(m.Parts))
	}
	for i := range further {
		if m, lo, hi, release, err := further[i].open(); err == nil {
			note(further[i].Store, m, lo, hi)
			release() // if it is removed now, its blocks come from the sender
		}
	}
	for _, m := range published {
		note(s, m, 0, len(m.Parts))
	}
	return files
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
		if err := r.wrote(i, b*BlockBytes, len(piece)); err != nil {
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
