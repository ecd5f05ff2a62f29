package kv

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/memory"
	"github.com/millrace/millrace/server/mvcc"
)

func newMemory() engine.Engine { return memory.New() }

// volatile is a machine whose engine is in memory: millrace.StateMachine.
type volatile struct{ m *Machine }

func (v volatile) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	return v.m.Apply(batch, results)
}

// MembersChanged implements millrace.MembersObserver.
func (v volatile) MembersChanged(c millrace.Configuration) error { return v.m.MembersChanged(c) }

// Close is for kits that test the machine.
func (v volatile) Close() error { return v.m.Close() }

// Snapshot implements millrace.StateMachine. The engine's reader is of the state at the call.
func (v volatile) Snapshot() (millrace.Snapshot, error) {
	s := v.m.store.Load()
	r := s.Engine().Pin()
	return &stream{r: r, spaces: allSpaces, needs: mvcc.NewFilter(r, s.Visible()).Needs}, nil
}

// Restore implements millrace.StateMachine.
func (v volatile) Restore(ctx context.Context, r io.Reader) error {
	e := memory.New()
	b := e.Batch()
	if err := readStream(ctx, r, allSpaces, b.Set); err != nil {
		return err
	}
	if err := e.Write(b); err != nil {
		return err
	}
	c, err := load(e, v.m.o)
	if err != nil {
		return err
	}
	c.store.MarkSwept()
	v.m.replace(c)
	return nil
}

// replace makes a restored state that of the machine, and returns the store that it had.
func (m *Machine) replace(c *contents) *mvcc.Store {
	old := m.store.Load()
	m.install(c)
	old.Close()
	m.feed.Restored(c.store.Visible().Revision)
	return old
}

// The stream of a snapshot is keys of the engine in their order:
//
//	"mrkv1", and for each key: uvarint n+1, n bytes prefix, uvarint main, uvarint sub, uvarint m, m bytes value
//	0
const streamFormat = "mrkv1"

// maxRecordBytes bounds what a stream may claim of a key or a value.
const maxRecordBytes = 1 << 30

// The spaces of a stream, as ranges of prefixes.
var allSpaces = [][2]byte{{0x01, 0xff}}

// stream is a snapshot that is written from a reader: of all spaces, or of those that a checkpoint does not
// have as they were.
type stream struct {
	r      engine.Reader
	spaces [][2]byte
	needs  func(k engine.Key, value []byte) (bool, error) // nil: all
}

// WriteTo implements millrace.Snapshot.
func (s *stream) WriteTo(ctx context.Context, to io.Writer) error {
	w := bufio.NewWriterSize(to, 64<<10)
	w.WriteString(streamFormat)
	for _, space := range s.spaces {
		if err := s.writeSpace(ctx, w, []byte{space[0]}, []byte{space[1]}); err != nil {
			return err
		}
	}
	w.WriteByte(0)
	return w.Flush()
}

func (s *stream) writeSpace(ctx context.Context, w *bufio.Writer, lo, hi []byte) (err error) {
	it := s.r.Iterate(lo, hi)
	defer func() { err = errors.Join(err, it.Close()) }()
	var head []byte
	for n := 0; it.Next(); n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		k := it.Key()
		v, err := it.Value()
		if err != nil {
			return err
		}
		if s.needs != nil {
			if needed, err := s.needs(k, v); err != nil {
				return err
			} else if !needed {
				continue
			}
		}
		head = binary.AppendUvarint(head[:0], uint64(len(k.Prefix))+1)
		head = append(head, k.Prefix...)
		head = binary.AppendUvarint(binary.AppendUvarint(head, uint64(k.Main)), uint64(k.Sub))
		head = binary.AppendUvarint(head, uint64(len(v)))
		w.Write(head)
		if _, err := w.Write(v); err != nil {
			return err
		}
	}
	return nil
}

// Close implements millrace.Snapshot.
func (s *stream) Close() error {
	s.r.Close()
	return nil
}

// readStream calls set with the keys of a stream, which are in some spaces. The stream may be of another
// member: what no member writes is refused.
func readStream(ctx context.Context, from io.Reader, spaces [][2]byte, set func(engine.Key, []byte)) error {
	r := bufio.NewReaderSize(from, 64<<10)
	format := make([]byte, len(streamFormat))
	if _, err := io.ReadFull(r, format); err != nil {
		return fmt.Errorf("kv: the stream of the snapshot: %w", err)
	}
	if string(format) != streamFormat {
		return fmt.Errorf("kv: the stream of the snapshot begins with %q, want %q; did another version of this program write it?", format, streamFormat)
	}
	for n := 0; ; n++ {
		if n%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		k, v, end, err := readRecord(r)
		if err != nil {
			return fmt.Errorf("kv: key %d of the stream of the snapshot: %w", n, err)
		}
		if end {
			_, err := io.Copy(io.Discard, r)
			return err
		}
		if !slices.ContainsFunc(spaces, func(s [2]byte) bool { return len(k.Prefix) > 0 && s[0] <= k.Prefix[0] && k.Prefix[0] < s[1] }) {
			return fmt.Errorf("kv: key %d of the stream of the snapshot is %.20q, in no space that a stream has; did another version of this program write it?", n, k.Prefix)
		}
		set(k, v)
	}
}

func readRecord(r *bufio.Reader) (k engine.Key, v []byte, end bool, err error) {
	n, err := binary.ReadUvarint(r)
	if err != nil || n == 0 {
		return k, nil, n == 0, err
	}
	if k.Prefix, err = readBytes(r, n-1); err != nil {
		return k, nil, false, err
	}
	main, err := binary.ReadUvarint(r)
	if err != nil {
		return k, nil, false, err
	}
	sub, err := binary.ReadUvarint(r)
	if err != nil {
		return k, nil, false, err
	}
	if main > math.MaxInt64 || sub > math.MaxUint32 {
		return k, nil, false, fmt.Errorf("its revision %d, %d is out of bounds", main, sub)
	}
	k.Main, k.Sub = int64(main), uint32(sub)
	if n, err = binary.ReadUvarint(r); err != nil {
		return k, nil, false, err
	}
	v, err = readBytes(r, n)
	return k, v, false, err
}

func readBytes(r io.Reader, n uint64) ([]byte, error) {
	if n > maxRecordBytes {
		return nil, fmt.Errorf("it has %d bytes, at most %d are possible", n, maxRecordBytes)
	}
	b := make([]byte, min(n, 64<<10)) // a claim takes no memory: what has come does
	for have := uint64(0); ; {
		if _, err := io.ReadFull(r, b[have:]); err != nil {
			return nil, err
		}
		if have = uint64(len(b)); have == n {
			return b, nil
		}
		b = append(b, make([]byte, min(n-have, have))...)
	}
}
