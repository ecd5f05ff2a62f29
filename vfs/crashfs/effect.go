package crashfs

import (
	"errors"
	"fmt"
	"io"
)

// The value that a hook returns decides what happens to the operation: nil lets it happen, an error makes it
// fail and change nothing, and one of the effects below makes the disk do something worse than fail. Effects
// are errors, so that one kind of hook serves for all of them, alone (FailNth, SetHook) or combined (When,
// Odds, Hooks).

// Lie is for Sync, SyncDir, Write and Truncate: the disk reports success and does nothing. A Sync that lies
// keeps nothing, and the next honest one keeps everything. A Write that lies is lost, for readers too.
var Lie error = &effect{kind: lie}

// Short is for Write and Read: only the first n bytes arrive, and the caller gets n and err. With a nil err
// the disk breaks the contract of io.WriterAt, as broken disks do. n is limited to the length of the
// operation.
func Short(n int, err error) error { return &effect{kind: short, n: int64(n), err: err} }

// Flip is for Write and Read: bit b (0 to 7) of byte n of the transferred bytes is flipped, without an error.
// n is taken modulo the length.
func Flip(n int, b uint) error { return &effect{kind: flip, n: int64(n), bit: b & 7} }

// Misdirect is for Write: the bytes arrive at an offset that is n bytes further on. n may be negative.
func Misdirect(n int64) error { return &effect{kind: misdirect, n: n} }

// Scattered is for Write: the write fails with err and reports 0 bytes written, after some of its sectors,
// drawn from the seed, were written. Direct writes fail in this way (vfs.BlockWriter); vfs.File promises not
// to, when the disk is full.
func Scattered(seed uint64, err error) error {
	return &effect{kind: scattered, n: int64(seed), err: err}
}

// Then is for Sync: the Sync happens, and then f runs before the Sync returns, so it does not cover what f
// writes. f runs without a lock.
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

var effectNames = [...]string{"lie", "short transfer", "bit flip", "misdirected write", "scattered write", "sync with a function after it"}

type effect struct {
	kind effectKind
	n    int64
	bit  uint
	err  error
	then func()
}

// Error describes an effect that was requested for an operation that cannot have it. That operation fails
// with it.
func (e *effect) Error() string {
	return fmt.Sprintf("crashfs: a hook returned a %s, which does not apply to this operation", effectNames[e.kind])
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

// write performs a write that a hook has spoiled. The caller holds mu.
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

// read spoils the bytes that were read into p. The caller holds mu.
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
