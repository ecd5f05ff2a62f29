package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/timers"
)

// store is the state machine: a map from keys to values, in memory.
type store struct {
	mu     sync.RWMutex // Apply writes; requests read
	items  items
	totals server.Totals
}

func newStore() *store { return &store{items: items{all: map[string]server.Item{}}} }

// Machine says what millrace must know of a store. Results are kept, so that a change of a session that comes
// again gets the first answer.
func (s *store) Machine() millrace.Machine[server.Command, server.Result] {
	return millrace.InMemory(s, millrace.Binary[server.Command]()).Results(millrace.Binary[server.Result]()).Digest(s.digest).
		Timers(&s.items.ends, server.Command{Op: server.Tick}).Version("1")
}

// maxExpired bounds the keys that go with one command. More ticks follow if more are due.
const maxExpired = 1000

// Apply implements millrace.StateMachine.
func (s *store) Apply(batch []millrace.Command[server.Command], results []server.Result) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		for key := range s.items.ends.Expire(batch[i].Time, maxExpired) {
			s.totals.Remove(key, s.items.all[key])
			delete(s.items.all, key)
			server.PublishExpired(&batch[i], key)
		}
		if results[i], err = s.totals.Apply(&s.items, &batch[i].Value, server.VersionOf(batch[i].Index, batch[i].Pos), batch[i].Time); err != nil {
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
type items struct {
	all  map[string]server.Item
	ends timers.Queue[string] // of the items that go by themselves: each Item.Expires
}

func (m *items) Get(key string) (i server.Item, found bool, err error) {
	i, found = m.all[key]
	return i, found, nil
}

func (m *items) Set(key string, i server.Item) error {
	m.all[key] = i
	if i.Expires != 0 {
		m.ends.Set(key, i.Expires)
	} else {
		m.ends.Cancel(key)
	}
	return nil
}

func (m *items) Remove(key string) error {
	delete(m.all, key)
	m.ends.Cancel(key)
	return nil
}

// Snapshot implements millrace.StateMachine. It copies the map, which shares the values with it.
func (s *store) Snapshot() (millrace.Snapshot, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return snapshot(maps.Clone(s.items.all)), nil
}

type snapshot map[string]server.Item

// expiring begins a snapshot with items that go by themselves. An earlier version of this program takes it
// for the number of items, and refuses the snapshot.
const expiring = math.MaxUint64

// WriteTo implements millrace.Snapshot: the number of items, and then for each, in the order of the keys, its
// version, key and value, with their lengths. If some go by themselves, the number expiring comes before it,
// and the encoding of a queue with its length.
func (s snapshot) WriteTo(ctx context.Context, w io.Writer) error {
	var ends timers.Queue[string]
	for key, i := range s {
		if i.Expires != 0 {
			ends.Set(key, i.Expires)
		}
	}
	var b []byte
	if ends.Len() > 0 {
		queue, err := ends.MarshalBinary()
		if err != nil {
			return err
		}
		b = binary.AppendUvarint(b, expiring)
		b = append(binary.AppendUvarint(b, uint64(len(queue))), queue...)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	b = binary.AppendUvarint(b, uint64(len(s)))
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
	fields := server.NewFields(in)
	n := fields.Uvarint()
	var ends timers.Queue[string]
	if n == expiring {
		queue := fields.Bytes(server.MaxStateBytes)
		if fields.Err() == nil {
			if err := ends.UnmarshalBinary(queue); err != nil {
				return fmt.Errorf("when items go: %w", err)
			}
		}
		n = fields.Uvarint()
	}
	if fields.Err() != nil {
		return fmt.Errorf("the number of items: %w", fields.Err())
	}
	all := map[string]server.Item{}
	for k := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		version, key := fields.Uvarint(), string(fields.Bytes(server.MaxKeyBytes))
		all[key] = server.Item{Version: version, Value: fields.Bytes(server.MaxValueBytes)}
		switch {
		case fields.Err() != nil:
			return fmt.Errorf("item %d of %d: %w", k+1, n, fields.Err())
		case uint64(len(all)) != k+1:
			return fmt.Errorf("item %d of %d has the key of another one, %.80q", k+1, n, key)
		}
	}
	for timer := range ends.All() {
		i, found := all[timer.Key]
		if !found {
			return fmt.Errorf("a time for key %.80q, which is no item", timer.Key)
		}
		i.Expires = timer.Deadline
		all[timer.Key] = i
	}
	totals := server.Totals{}
	for key, i := range all {
		totals.Add(key, i)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items.all, s.totals = all, totals
	s.items.ends.Replace(&ends)
	return nil
}
