package snapshot

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"sync"

	"github.com/millrace/millrace/vfs"
)

// A Receiver puts together a snapshot that another member offers. The offer is the other member's manifest,
// and every block is checked against it before it is written. So it does not matter who sends a block, in
// which order, and how often. The files alone say what was received: a block counts if the file has it and
// its checksum is right. So a receive continues after a crash, and with another sender, where it stopped.
//
// Invariant: only recv-N is ever written to, and it has one name. part-N may be a link to a part of another
// snapshot; it gets its name when its content has been synced and its SHA-256 verified.
//
// Missing and Progress may be called at any time. The other methods are for one goroutine at a time.
type Receiver struct {
	store *Store
	id    ID
	dir   string
	names vfs.Dir // dir, held as in Writer
	offer []byte
	m     *Manifest

	mu    sync.Mutex // guards the rest
	parts []received
	first int // no part before it misses a block
	have  int64
	// complete: every part is verified and its name durable.
	complete bool
	ended    bool
	paced    paced
	written  []int // the parts that were written since paced was due, or that the disk was given then
	err      error // the first one after which the directory cannot be trusted
}

// received is how much of a part was received.
type received struct {
	blocks  []uint64 // a bit for each block that counts. nil: none
	missing int64
	whole   bool // it is part-N, verified
	begun   bool // there is a recv-N
	// unsynced is what was written to it since it was opened (paced).
	unsynced written
}

func (p *received) has(block int64) bool {
	return p.whole || p.blocks != nil && p.blocks[block/64]&(1<<(block%64)) != 0
}

func recvFile(i int) string { return fmt.Sprintf("recv-%08d", i) }

// Range is a run of blocks of a part.
type Range struct {
	Part          int
	Block, Blocks int64
}

// Receive begins to receive the snapshot that m offers, or continues with it: blocks that were received
// before are read and checked, and stay. Parts of another snapshot of this store, or of further, are linked
// and checked. A source that is not there, or is damaged, is left out. Other unfinished receives are
// removed. A store receives one snapshot at a time: ErrBusy.
//
// It returns ErrPublished if a snapshot with this id is published, and a *FormatError if m is not valid. It
// returns a *SpaceError if the filesystem has less space than what is missing. It takes the time of reading
// what was received before, and what was linked. After ErrPublished, the published snapshot can be used: it
// stands for the same entries.
func (s *Store) Receive(ctx context.Context, m Manifest, further ...Source) (*Receiver, error) {
	offer, err := m.Append(nil)
	if err != nil {
		return nil, err
	}
	kept, err := DecodeManifest(offer) // shares no memory with the caller
	if err != nil {
		return nil, err
	}
	id := m.ID()
	if err := s.claim(id, &s.receiving); err != nil {
		return nil, fmt.Errorf("snapshot: receive %v in %s: %w", id, s.dir, err)
	}
	r := &Receiver{store: s, id: id, dir: s.path(id), offer: offer, m: &kept, parts: make([]received, len(kept.Parts)), paced: paced{every: s.pace}}
	for i := range r.parts {
		r.parts[i].missing = kept.Parts[i].Blocks()
	}
	if err := r.begin(ctx, further); err != nil {
		r.closeNames()
		s.mu.Lock()
		resumable := r.err == nil && s.unfinished[id] != nil
		s.mu.Unlock()
		s.end(id, &s.receiving, !resumable)
		return nil, fmt.Errorf("snapshot: receive %v in %s: %w", id, s.dir, err)
	}
	return r, nil
}

// closeNames closes the directory.
func (r *Receiver) closeNames() {
	if r.names != nil {
		_ = r.names.Close() // what must be durable is, or does not count
	}
}

// mark notes that blocks were received.
func (r *Receiver) mark(i int, block, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.parts[i]
	if p.blocks == nil {
		p.blocks = make([]uint64, (r.m.Parts[i].Blocks()+63)/64)
	}
	for b := block; b < block+n; b++ {
		if !p.has(b) {
			p.blocks[b/64] |= 1 << (b % 64)
			p.missing--
			r.have += int64(r.m.Parts[i].blockBytes(b))
		}
	}
}

// markWhole notes that part-N is there and verified.
func (r *Receiver) markWhole(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts[i].missing > 0 {
		r.have += r.m.Parts[i].Bytes // scan finds part-N before any block of recv-N
	}
	r.parts[i] = received{whole: true}
}

func (r *Receiver) setBegun(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[i].begun = true
}

// drop removes what was received of a part. All its blocks are missing again.
func (r *Receiver) drop(i int) error {
	if err := r.store.fs.Remove(filepath.Join(r.dir, recvFile(i))); err != nil {
		return r.fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.m.Parts[i]
	for b := range p.Blocks() {
		if r.parts[i].has(b) {
			r.have -= int64(p.blockBytes(b))
		}
	}
	r.parts[i] = received{missing: p.Blocks()}
	r.first = 0
	return nil
}

// fail stops the receiver for good: what the directory holds is not known.
func (r *Receiver) fail(err error) error {
	if r.err == nil {
		r.err = fmt.Errorf("snapshot: receive %v in %s: %w", r.id, r.store.dir, err)
	}
	return r.err
}

func (r *Receiver) ready() error {
	if r.ended {
		return fmt.Errorf("snapshot: receive %v in %s: %w", r.id, r.store.dir, ErrEnded)
	}
	return r.err
}

// Manifest returns the offer. The caller must not change what it refers to.
func (r *Receiver) Manifest() Manifest { return *r.m }

// Missing returns the first runs of blocks that are missing, in the order of parts and blocks, at most max of
// them. A run ends with its part. It does not touch the disk.
func (r *Receiver) Missing(most int) []Range {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.first < len(r.parts) && r.parts[r.first].missing == 0 {
		r.first++
	}
	var runs []Range
	for i := r.first; i < len(r.parts) && len(runs) < most; i++ {
		p := &r.parts[i]
		if p.missing == 0 {
			continue
		}
		blocks := r.m.Parts[i].Blocks()
		for b := int64(0); b < blocks && len(runs) < most; b++ {
			if p.has(b) {
				continue
			}
			run := Range{Part: i, Block: b, Blocks: 1}
			for b++; b < blocks && !p.has(b); b++ {
				run.Blocks++
			}
			runs = append(runs, run)
		}
	}
	return runs
}

// Progress returns how many bytes of content were received, and how many the snapshot has. It does not touch
// the disk.
func (r *Receiver) Progress() (have, want int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.have, r.m.Bytes()
}

// Put writes consecutive blocks of a part, as Reader.ReadBlocks returns them. Blocks that were received
// before are not written again. If a block is not the one that the offer names, or raw is not made of whole
// blocks, Put returns a *BlockError and changes nothing. After an error of the disk (it is full, say), the
// blocks are still missing, and the same Put may be tried again.
func (r *Receiver) Put(part int, block int64, raw []byte) error {
	if err := r.ready(); err != nil {
		return err
	}
	if err := r.rejectBlocks(part, block, raw); err != nil {
		return err
	}
	n := blocksOf(int64(len(raw)))
	for lo := int64(0); lo < n; lo++ {
		hi := lo
		for hi < n && !r.has(part, block+hi) {
			hi++
		}
		if hi == lo {
			continue
		}
		piece := raw[lo*BlockBytes : min(hi*BlockBytes, int64(len(raw)))]
		if err := r.write(part, piece, (block+lo)*BlockBytes); err != nil {
			return fmt.Errorf("snapshot: receive %v: write %s: %w", r.id, filepath.Join(r.dir, recvFile(part)), err)
		}
		r.mark(part, block+lo, hi-lo)
		lo = hi
	}
	return nil
}

// rejectBlocks returns why blocks are not what the offer names, or nil.
func (r *Receiver) rejectBlocks(part int, block int64, raw []byte) error {
	if part < 0 || part >= len(r.m.Parts) {
		return &BlockError{Part: part, Block: block, What: fmt.Sprintf("the snapshot has %d parts", len(r.m.Parts))}
	}
	p := &r.m.Parts[part]
	n := blocksOf(int64(len(raw)))
	switch {
	case block < 0 || block >= p.Blocks() || n > p.Blocks()-block:
		return &BlockError{Part: part, Block: block, What: fmt.Sprintf("%d blocks from here on, and the part has %d in all", n, p.Blocks())}
	case len(raw) == 0 || int64(len(raw)) != min(n*BlockBytes, p.Bytes-block*BlockBytes):
		return &BlockError{Part: part, Block: block, What: fmt.Sprintf("%d bytes are not whole blocks of %d, in a part of %d bytes", len(raw), BlockBytes, p.Bytes)}
	}
	for b := range n {
		piece := raw[b*BlockBytes:][:p.blockBytes(block+b)]
		if have := crc32.Checksum(piece, castagnoli); have != p.Sums[block+b] {
			return &BlockError{Part: part, Block: block + b, What: errSum{have: have, want: p.Sums[block+b]}.Error()}
		}
	}
	return nil
}

func (r *Receiver) has(part int, block int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts[part].has(block)
}

// write writes into recv-N.
func (r *Receiver) write(part int, content []byte, off int64) (err error) {
	open := r.store.fs.Open
	if !r.parts[part].begun {
		open = r.store.fs.Create
	}
	f, err := open(filepath.Join(r.dir, recvFile(part)))
	if err != nil {
		return err
	}
	r.setBegun(part)
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err = f.WriteAt(content, off); err != nil {
		return err
	}
	return r.wrote(part, off, len(content))
}

// wrote is called after n bytes of a part were written at off. Every few bytes the disk is given what was
// written. Nothing counts any more of a part for which that failed.
func (r *Receiver) wrote(part int, off int64, n int) error {
	if !slices.Contains(r.written, part) {
		r.written = append(r.written, part)
	}
	r.parts[part].unsynced.add(off, n)
	if !r.paced.due(n) {
		return nil
	}
	var errs []error
	var given []int
	for _, i := range r.written {
		if !r.parts[i].begun {
			continue // dropped, or complete
		}
		if r.parts[i].unsynced.next.Bytes > 0 {
			given = append(given, i) // the next time it is waited for
		}
		recv := filepath.Join(r.dir, recvFile(i))
		f, err := r.store.fs.Open(recv)
		if vfs.IsShort(err) {
			continue // Finish syncs it
		}
		if err == nil {
			err = errors.Join(r.parts[i].unsynced.writeBack(f), f.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write back %s: %w", recv, err), r.drop(i))
		}
	}
	r.written = given
	return errors.Join(errs...)
}

// Finish makes what was received durable and verifies the SHA-256 of every part. It returns ErrIncomplete if
// blocks are missing. A part with another SHA-256, or whose sync failed, is dropped: its blocks are missing
// again, and the error matches ErrIncomplete, too.
func (r *Receiver) Finish(ctx context.Context) error {
	if err := r.ready(); err != nil || r.complete {
		return err
	}
	var errs []error
	for i := range r.parts {
		if r.parts[i].missing > 0 {
			return fmt.Errorf("snapshot: receive %v in %s: %w", r.id, r.store.dir, ErrIncomplete)
		}
	}
	for i := range r.parts {
		if r.parts[i].whole {
			continue
		}
		if err := r.finishPart(ctx, i); err != nil {
			if r.err != nil || ctx.Err() != nil || r.parts[i].missing == 0 {
				return err
			}
			errs = append(errs, err)
		}
	}
	if errs != nil {
		return fmt.Errorf("snapshot: receive %v in %s: %w: %w", r.id, r.store.dir, ErrIncomplete, errors.Join(errs...))
	}
	if err := r.names.Sync(); err != nil {
		return r.fail(err)
	}
	r.complete = true
	return nil
}

// finishPart makes recv-N part-N, or drops it.
func (r *Receiver) finishPart(ctx context.Context, i int) error {
	recv := filepath.Join(r.dir, recvFile(i))
	f, err := r.openReceived(i, recv)
	if vfs.IsShort(err) {
		return err // what was received stays
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		if r.parts[i].begun {
			return errors.Join(fmt.Errorf("sync %s: %w", recv, err), r.drop(i))
		}
		return err
	}
	err = verifyFile(ctx, r.store.fs, recv, r.m, i)
	if damage := (*DamageError)(nil); errors.As(err, &damage) {
		return errors.Join(err, r.drop(i))
	}
	if err != nil {
		return err
	}
	if err := r.store.fs.Rename(recv, filepath.Join(r.dir, partFile(i))); err != nil {
		return r.fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[i] = received{whole: true}
	return nil
}

// openReceived opens recv-N. A part without content gets its file here.
func (r *Receiver) openReceived(i int, recv string) (vfs.File, error) {
	if r.parts[i].begun {
		return r.store.fs.Open(recv)
	}
	f, err := r.store.fs.Create(recv)
	if err == nil {
		r.setBegun(i)
	}
	return f, err
}

// Publish publishes the snapshot after Finish: the offer becomes the MANIFEST. When it returns nil, the
// snapshot is in Store.List, durable and Verified.
func (r *Receiver) Publish() error {
	if err := r.ready(); err != nil {
		return err
	}
	if !r.complete {
		return fmt.Errorf("snapshot: publish %v in %s before Finish: %w", r.id, r.store.dir, ErrIncomplete)
	}
	fsys, offer := r.store.fs, filepath.Join(r.dir, offerFile)
	same, err := sameBytes(fsys, offer, r.offer)
	switch {
	case vfs.IsShort(err):
		return fmt.Errorf("snapshot: publish %v in %s: %w", r.id, r.store.dir, err)
	case err != nil:
		return r.fail(err)
	case !same:
		return r.fail(fmt.Errorf("%s is not what was written", offer))
	}
	if err := fsys.Rename(offer, filepath.Join(r.dir, manifestFile)); err != nil {
		return r.fail(err)
	}
	if err := r.names.Sync(); err != nil {
		return r.fail(err)
	}
	r.ended = true
	r.closeNames()
	r.store.addPublished(r.m, true)
	r.store.end(r.id, &r.store.receiving, false)
	return nil
}

// Close ends the receiver and keeps what was received: Receive continues with it. After an error that leaves
// the directory in doubt, it removes the directory, as Abort does. It does nothing after Publish.
func (r *Receiver) Close() error {
	if r.err != nil {
		return r.Abort()
	}
	if !r.ended {
		r.ended = true
		r.closeNames()
		r.store.end(r.id, &r.store.receiving, false)
	}
	return nil
}

// Abort ends the receiver and removes what was received. It does nothing after Publish or Close. If it fails,
// the store tries again with the next Prune, and when it is opened.
func (r *Receiver) Abort() error {
	if r.ended {
		return nil
	}
	r.ended = true
	r.closeNames()
	r.store.forget(r.id)
	err := r.store.removeDir(r.id)
	r.store.end(r.id, &r.store.receiving, err != nil)
	return err
}
