package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/millrace/millrace"
)

// store is the state machine: a map from keys to values, in memory. Its results depend on the commands alone,
// so all members have the same ones: also the refusal of a put for which there is no space.
type store struct {
	mu    sync.RWMutex // Apply writes; requests read
	items map[string]item
	bytes int64 // of keys and values
	// sum is the sum of the hashes of all items. Members compare it (Machine.Digest).
	sum uint64
}

// item is the value of a key. The bytes do not change: a put replaces them.
type item struct {
	value   []byte
	version uint64 // index of the command that wrote it: no other value of the group has it
}

func newStore() *store { return &store{items: map[string]item{}} }

// machine says what millrace must know of a store. Results are kept, so that a change of a session that comes
// again gets the first answer.
func (s *store) machine() millrace.Machine[command, result] {
	return millrace.InMemory(s, millrace.Binary[command]()).Results(millrace.Binary[result]()).Digest(s.digest).Version("1")
}

// maxStateBytes bounds keys and values.
const maxStateBytes = 1 << 30

// Apply implements millrace.StateMachine.
func (s *store) Apply(batch []millrace.Command[command], results []result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		results[i] = s.apply(&batch[i].Value, batch[i].Index)
	}
	return nil
}

func (s *store) apply(c *command, index uint64) result {
	have, found := s.items[c.key]
	if c.when == ifAbsent && found || c.when == ifVersion && (!found || have.version != c.version) {
		return result{mismatch, have.version, have.value}
	}
	switch c.op {
	case opPut:
		return s.put(c.key, item{c.value, index})
	case opAdd:
		sum, err := add(have.value, c.delta)
		if err != nil {
			return result{noNumber, have.version, nil}
		}
		r := s.put(c.key, item{sum, index})
		if r.verdict == done {
			r.value = sum
		}
		return r
	case opDelete:
		if !found {
			return result{verdict: missing}
		}
		s.bytes -= size(c.key, have)
		s.sum -= have.hash(c.key)
		delete(s.items, c.key)
	}
	return result{verdict: done}
}

// put sets a key if there is space. Its result has no value, since the client knows it.
func (s *store) put(key string, new item) result {
	have, found := s.items[key]
	grown := s.bytes + size(key, new)
	if found {
		grown -= size(key, have)
	}
	if grown > maxStateBytes {
		return result{full, have.version, nil}
	}
	if found {
		s.sum -= have.hash(key)
	}
	s.sum += new.hash(key)
	s.items[key], s.bytes = new, grown
	return result{verdict: done, version: new.version}
}

// hash is a number that tells items apart.
func (i item) hash(key string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key)
	var b [9]byte // with a byte that ends the key
	binary.BigEndian.PutUint64(b[1:], i.version)
	_, _ = h.Write(b[:])
	_, _ = h.Write(i.value)
	return h.Sum64()
}

// digest is for millrace.Machine.Digest. Apply does not run meanwhile.
func (s *store) digest() uint64 { return s.sum }

func size(key string, i item) int64 { return int64(len(key) + len(i.value)) }

// add adds to a decimal number. No bytes are 0.
func add(value []byte, delta int64) ([]byte, error) {
	var n int64
	if len(value) > 0 {
		var err error
		if n, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return nil, err
		}
	}
	if sum := n + delta; (sum > n) == (delta > 0) {
		return strconv.AppendInt(nil, sum, 10), nil
	}
	return nil, errors.New("the sum does not fit into 64 bits")
}

// get returns the item of a key.
func (s *store) get(key string) (i item, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, found = s.items[key]
	return i, found
}

func (s *store) size() (keys int, bytes int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.items), s.bytes
}

// Snapshot implements millrace.StateMachine. It copies the map, which shares the values with it.
func (s *store) Snapshot() (millrace.Snapshot, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return snapshot(maps.Clone(s.items)), nil
}

type snapshot map[string]item

// WriteTo implements millrace.Snapshot: the number of items, and then for each, in the order of the keys, its
// version, key and value, with their lengths.
func (s snapshot) WriteTo(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 64<<10)
	b := binary.AppendUvarint(nil, uint64(len(s)))
	for _, key := range slices.Sorted(maps.Keys(s)) {
		i := s[key]
		b = binary.AppendUvarint(b, i.version)
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = append(binary.AppendUvarint(b, uint64(len(i.value))), i.value...)
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
	items, bytes, sum := map[string]item{}, int64(0), uint64(0)
	for k := range n {
		if err := ctx.Err(); err != nil {
			return err
		}
		key, i, err := readItem(in)
		if err != nil {
			return fmt.Errorf("item %d of %d: %w", k+1, n, whole(err))
		}
		if _, twice := items[key]; twice {
			return fmt.Errorf("item %d of %d has the key of another one, %.80q", k+1, n, key)
		}
		items[key] = i
		bytes += size(key, i)
		sum += i.hash(key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.items, s.bytes, s.sum = items, bytes, sum
	return nil
}

func readItem(in *bufio.Reader) (key string, i item, err error) {
	version, err1 := binary.ReadUvarint(in)
	k, err2 := readBytes(in, maxKeyBytes)
	value, err3 := readBytes(in, maxValueBytes)
	return string(k), item{value, version}, cmp.Or(err1, err2, err3)
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
