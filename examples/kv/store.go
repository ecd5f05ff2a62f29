package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
)

// store is the state machine: a map from keys to values, in memory.
type store struct {
	mu     sync.RWMutex // Apply writes; requests read
	items  items
	totals server.Totals
}

func newStore() *store { return &store{items: items{}} }

// Machine says what millrace must know of a store. Results are kept, so that a change of a session that comes
// again gets the first answer.
func (s *store) Machine() millrace.Machine[server.Command, server.Result] {
	return millrace.InMemory(s, millrace.Binary[server.Command]()).Results(millrace.Binary[server.Result]()).Digest(s.digest).Version("1")
}

// Apply implements millrace.StateMachine.
func (s *store) Apply(batch []millrace.Command[server.Command], results []server.Result) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		if results[i], err = s.totals.Apply(s.items, &batch[i].Value, server.VersionOf(batch[i].Index, batch[i].Pos)); err != nil {
			return err
		}
		server.Publish(&batch[i], results[i])
	}
	return nil
}

// digest is for millrace.Machine.Digest. Apply does not run meanwhile.
func (s *store) digest() uint64 { return s.totals.Sum }

// Get implements server.Store.
func (s *store) Get(key string) (i server.Item, found bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items.Get(key)
}

// Totals implements server.Store.
func (s *store) Totals() server.Totals {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.totals
}

// Close implements server.Store.
func (s *store) Close() error { return nil }

// items implements server.Items. Its errors are nil.
type items map[string]server.Item

func (m items) Get(key string) (i server.Item, found bool, err error) {
	i, found = m[key]
	return i, found, nil
}

func (m items) Set(key string, i server.Item) error {
	m[key] = i
	return nil
}

func (m items) Remove(key string) error {
	delete(m, key)
	return nil
}

// Snapshot implements millrace.StateMachine. It copies the map, which shares the values with it.
func (s *store) Snapshot() (millrace.Snapshot, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return snapshot(maps.Clone(s.items)), nil
}

type snapshot map[string]server.Item

// WriteTo implements millrace.Snapshot: the number of items, and then for each, in the order of the keys, its
// version, key and value, with their lengths.
func (s snapshot) WriteTo(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	b := binary.AppendUvarint(nil, uint64(len(s)))
	for _, key := range slices.Sorted(maps.Keys(s)) {
		i := s[key]
		b = binary.AppendUvarint(b, i.Version)
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(i.Value))), i.Value...)
		if _, err := out.Write(b); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		b = b[:0]
	}
	if _, err := out.Write(b); err != nil { // the number of items, if there are none
		return err
	}
	return out.Flush()
}

// Close implements millrace.Snapshot.
func (snapshot) Close() error { return nil }

// Restore implements millrace.StateMachine. It replaces the state when everything is read.
func (s *store) Restore(ctx context.Context, r io.Reader) error {
	in := bufio.NewReader(r)
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return fmt.Errorf("the number of items: %w", whole(err))
	}
	all, totals := items{}, server.Totals{}
	for k := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		key, i, err := readItem(in)
		if err != nil {
			return fmt.Errorf("item %d of %d: %w", k+1, n, whole(err))
		}
		if _, twice := all[key]; twice {
			return fmt.Errorf("item %d of %d has the key of another one, %.80q", k+1, n, key)
		}
		all[key] = i
		totals.Add(key, i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items, s.totals = all, totals
	return nil
}

func readItem(in *bufio.Reader) (key string, i server.Item, err error) {
	version, err1 := binary.ReadUvarint(in)
	k, err2 := readBytes(in, server.MaxKeyBytes)
	value, err3 := readBytes(in, server.MaxValueBytes)
	return string(k), server.Item{Value: value, Version: version}, cmp.Or(err1, err2, err3)
}

func readBytes(in *bufio.Reader, limit uint64) ([]byte, error) {
	n, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("a field of %d bytes, want at most %d", n, limit)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(in, b)
	return b, err
}

// whole makes the end of the bytes inside an item an unexpected one.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
