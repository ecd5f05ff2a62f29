package server

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"strconv"
	"time"
)

// What commands do to items is here, for every state machine that keeps them. The results depend on the
// commands alone, so all members have the same ones: also the refusal of a put for which there is no space.

// Item is the value of a key. The bytes do not change: a put replaces them.
type Item struct {
	Value   []byte
	Version uint64 // VersionOf the command that wrote it: no other value of the group has it
	// Expires is when the key goes, in log time; 0: never.
	Expires time.Duration
}

// Items is where a state machine keeps its items.
type Items interface {
	Get(key string) (i Item, found bool, err error)
	Set(key string, i Item) error
	Remove(key string) error
}

// Totals describe all items. The zero value is that of none.
type Totals struct {
	Keys  int
	Bytes int64 // of keys and values
	// Sum is the sum of the hashes of all items. Members compare it (millrace.Machine.Digest).
	Sum uint64
}

// MaxStateBytes bounds keys and values.
const MaxStateBytes = 1 << 30

// VersionOf returns the version that a command gives a value. An index alone would not do: several commands
// may have one. For the first of them it is the index, as in earlier versions of this program.
func VersionOf(index uint64, pos uint32) uint64 { return index | uint64(pos)<<48 }

// Apply applies a command, which gives this version at log time now, to items, whose totals are t. An error
// is one of items.
func (t *Totals) Apply(items Items, c *Command, version uint64, now time.Duration) (Result, error) {
	if c.Op == Tick {
		return Result{Verdict: Done}, nil
	}
	have, found, err := items.Get(c.Key)
	if err != nil {
		return Result{}, err
	}
	if c.When == IfAbsent && found || c.When == IfVersion && (!found || have.Version != c.Version) {
		return Result{Mismatch, have.Version, have.Value}, nil
	}
	next := Item{Value: c.Value, Version: version}
	switch c.Op {
	case PutFor:
		next.Expires = now + c.TTL
	case Delete:
		if !found {
			return Result{Verdict: Missing}, nil
		}
		t.Remove(c.Key, have)
		return Result{Verdict: Done}, items.Remove(c.Key)
	case Add:
		next.Expires = have.Expires
		if next.Value, err = add(have.Value, c.Delta); err != nil {
			return Result{NoNumber, have.Version, nil}, nil
		}
	}
	after := *t
	if found {
		after.Remove(c.Key, have)
	}
	after.Add(c.Key, next)
	if after.Bytes > MaxStateBytes {
		return Result{Full, have.Version, nil}, nil
	}
	*t = after
	r := Result{Verdict: Done, Version: version} // the client knows what it has put
	if c.Op == Add {
		r.Value = next.Value
	}
	return r, items.Set(c.Key, next)
}

// Add counts an item.
func (t *Totals) Add(key string, i Item) {
	t.Keys++
	t.Bytes += int64(len(key) + len(i.Value))
	t.Sum += i.hash(key)
}

// Remove counts an item no more.
func (t *Totals) Remove(key string, i Item) {
	t.Keys--
	t.Bytes -= int64(len(key) + len(i.Value))
	t.Sum -= i.hash(key)
}

// hash is a number that tells items apart.
func (i Item) hash(key string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key)
	var b [9]byte // with a byte that ends the key
	binary.BigEndian.PutUint64(b[1:], i.Version)
	_, _ = h.Write(b[:])
	_, _ = h.Write(i.Value)
	if i.Expires != 0 { // others have the hash that they had in earlier versions of this program
		_, _ = h.Write(binary.BigEndian.AppendUint64(b[:0], uint64(i.Expires)))
	}
	return h.Sum64()
}

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
