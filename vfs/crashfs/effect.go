package crashfs

import (
	"errors"
	"fmt"
	"io"
)

// What a hook returns is what becomes of the operation: nil lets it happen, an error makes it fail and change nothing, and
// one of the effects below makes the disk do something worse than fail. They are errors so that one kind of hook serves
// for all, alone (FailNth, SetHook) or put together (When, Odds, Hooks).

// Lie is for Sync, SyncDir, Write and Truncate: the disk says yes and does nothing. A sync that lies keeps nothing, and
// the next honest one keeps everything; a write that lies is lost, for readers too.
var Lie error = &effect{kind: lie}

// Short is for Write and Read: only the first n bytes arrive, and the caller gets n and err. With a nil err the disk breaks
// the contract of io.WriterAt, as broken ones do. n is cut to what was asked for.
func Short(n int, err error) error { return &effect{kind: short, n: int64(n), err: err} }

// Flip is for Write and Read: bit b (0 to 7) of byte n of what is transferred is turned over on the way, and nobody is told.
// n is taken modulo the length.
func Flip(n int, b uint) error { return &effect{kind: flip, n: int64(n), bit: b & 7} }

// Misdirect is for Write: the bytes arrive, n bytes further on (n may be negative), where they do not belong.
func Misdirect(n int64) error { return &effect{kind: misdirect, n: n} }

// Scattered is for Write: the write fails with err and reports that 0 bytes arrived, after some of its sectors did, which
// the seed draws. Direct writes fail so (vfs.BlockWriter); vfs.File promises not to, for want of room.
func Scattered(seed uint64, err error) error {
	return &effect{kind: scattered, n: int64(seed), err: err}
}

// Then is for Sync: it happens, and then f runs before the caller hears of it: what is done meanwhile is not covered. The
// disk is not locked.
func Then(f func()) error { return &effect{kind: then, then: f} }

type effectKind int

const (
	lie effectKind = iota
	short
	flip
	misdirect
	scattered
	then
)

var effectNames = [...]string{"lie", "short transfer", "bit flip", "misdirected write", "scattered write", "sync with something behind it"}

type effect struct {
	kind effectKind
	n    int64
	bit  uint
	err  error
	then func()
}

// Error is seen only when the effect was asked of an operation that it is not for: that operation fails.
func (e *effect) Error() string {
	return fmt.Sprintf("crashfs: a hook asked for a %s, which this operation cannot have", effectNames[e.kind])
}

// effectOf returns the effect in err, or nil.
func effectOf(err error) *effect {
	var e *effect
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// lies reports whether err is Lie.
func lies(err error) bool {
	e := effectOf(err)
	return e != nil && e.kind == lie
}

// write carries out a write that a hook spoiled. The disk is locked.
func (e *effect) write(f *file, p []byte, off int64) (int, error) {
	switch e.kind {
	case lie:
		return len(p), nil
	case short:
		n, err := f.store(p[:min(max(0, e.n), int64(len(p)))], off)
		if err == nil {
			err = e.err
		}
		return n, err
	case flip:
		return f.store(e.flipped(p), off)
	case scattered:
		f.scatter(p, off, uint64(e.n))
		return 0, e.err
	}
	if off+e.n < 0 {
		return len(p), nil // off the edge of the disk
	}
	return f.store(p, off+e.n)
}

// read spoils what was read into p. The disk is locked.
func (e *effect) read(p []byte, n int, err error) (int, error) {
	switch {
	case e.kind == flip && n > 0:
		copy(p, e.flipped(p[:n]))
	case e.kind == short && e.n < int64(n):
		n, err = int(max(0, e.n)), e.err
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	return n, err
}

func (e *effect) flipped(p []byte) []byte {
	if len(p) == 0 {
		return p
	}
	q := append([]byte(nil), p...)
	n := int64(len(q))
	q[(e.n%n+n)%n] ^= 1 << e.bit
	return q
}
