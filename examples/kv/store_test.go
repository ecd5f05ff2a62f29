package main

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/smtest"
)

// A command and a result are what they were made of, and no bytes make the state machine panic.
func TestForms(t *testing.T) {
	for _, c := range []command{
		{op: opPut, key: "k", value: []byte("v")},
		{op: opPut, when: ifVersion, version: math.MaxUint64, key: strings.Repeat("k", maxKeyBytes), value: []byte{}},
		{op: opDelete, when: ifAbsent, key: "\x00", value: []byte{}},
		{op: opAdd, key: "", delta: math.MinInt64, value: []byte{}},
	} {
		b, err := c.AppendBinary(nil)
		var have command
		if err := have.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(have, c) {
			t.Errorf("%+v became %+v (%v)", c, have, err)
		}
		for n := range len(b) - len(c.value) {
			if have.UnmarshalBinary(b[:n]) == nil {
				t.Errorf("%d of the %d bytes of %+v are a command, too", n, len(b), c)
			}
		}
		if err != nil || len(b) > maxCommandBytes {
			t.Errorf("%d bytes (%v)", len(b), err)
		}
	}
	for _, b := range []string{"", "\x00\x00\x00\x00\x00", "\x04\x00\x00\x00\x00", "\x01\x03\x00\x00\x00", "\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if err := new(command).UnmarshalBinary([]byte(b)); err == nil {
			t.Errorf("%q is a command", b)
		}
	}
	want := result{mismatch, 7, []byte("v")}
	b, _ := want.AppendBinary(nil)
	var have result
	if err := have.UnmarshalBinary(b); err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("%+v became %+v (%v)", want, have, err)
	}
	if have.UnmarshalBinary(nil) == nil {
		t.Error("no bytes are a result")
	}
}

// A store is what millrace expects of a state machine: deterministic, with snapshots of one moment and an
// atomic Restore.
func TestStore(t *testing.T) {
	var commands []command
	value := func(i int) []byte { return []byte(strings.Repeat("v", i)) }
	for i := range 40 {
		key := string(rune('a' + i%5))
		commands = append(commands,
			command{op: opPut, key: key, value: value(i)},
			command{op: opPut, when: ifAbsent, key: key + key, value: value(i)},
			command{op: opPut, when: ifVersion, version: uint64(i), key: key, value: value(i)},
			command{op: opAdd, key: "n", delta: int64(i) - 7, value: []byte{}},
			command{op: opAdd, key: key, delta: math.MaxInt64, value: []byte{}},
			command{op: opDelete, key: key + key, value: []byte{}},
			command{op: opDelete, when: ifVersion, version: uint64(3 * i), key: "n", value: []byte{}},
		)
	}
	smtest.Run(t, func() millrace.Machine[command, result] { return newStore().machine() }, commands...)
}

// A store is the same after Snapshot and Restore, and as it was when its snapshot is damaged.
func TestSnapshot(t *testing.T) {
	s := newStore()
	var batch []millrace.Command[command]
	for i, key := range []string{"b", "a", "", "b"} {
		batch = append(batch, millrace.Command[command]{Index: uint64(i + 5), Value: command{op: opPut, key: key, value: []byte(strings.Repeat("v", i))}})
	}
	if err := s.Apply(batch, make([]result, len(batch))); err != nil {
		t.Fatal(err)
	}
	for _, from := range []*store{s, newStore()} {
		snap, err := from.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		from.apply(&command{op: opPut, key: "later", value: []byte("x")}, 100)
		var form bytes.Buffer
		if err := snap.WriteTo(t.Context(), &form); err != nil {
			t.Fatal(err)
		}
		from.apply(&command{op: opDelete, key: "later"}, 101)
		restored := newStore()
		if err := restored.Restore(t.Context(), bytes.NewReader(form.Bytes())); err != nil || restored.bytes != from.bytes || restored.digest() != from.digest() || len(restored.items) != len(from.items) {
			t.Errorf("%d items with %d bytes became %d with %d (%v)", len(from.items), from.bytes, len(restored.items), restored.bytes, err)
		}
		for key, i := range from.items {
			if have := restored.items[key]; have.version != i.version || !bytes.Equal(have.value, i.value) {
				t.Errorf("%q is %+v, want %+v", key, have, i)
			}
		}
		for n := range form.Len() {
			if err := restored.Restore(t.Context(), bytes.NewReader(form.Bytes()[:n])); err == nil || restored.digest() != from.digest() {
				t.Errorf("%d of %d bytes of a snapshot: %v, and the state has %d bytes, want %d", n, form.Len(), err, restored.bytes, from.bytes)
			}
		}
	}
}
