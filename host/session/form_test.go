package session

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// example is a small table with everything in its form: two sessions, a skipped number, results.
func example() *Table {
	t := New(twinOptions)
	t.Advance(time.Second)
	a, b := ID{Client: [16]byte{0xa}, Birth: time.Second}, ID{Client: [16]byte{0xb}}
	index := uint64(0)
	for _, m := range []Mark{{b, 1, 1}, {a, 1, 1}, {a, 4, 2}, {a, 3, 2}} {
		index++
		t.Apply(m, raftpb.Position{Index: index}, 2)
		t.Keep([][]byte{nil, {}, []byte("four"), []byte("three")}[index-1])
	}
	return t
}

// sealed gives a body its check.
func sealed(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}

// TestFormIsFixed: snapshots of this version must be readable for ever.
func TestFormIsFixed(t *testing.T) {
	const want = "02" + // version
		"80a8d6b907" + "8060" + "8020" + "8018" + // options
		"8094ebdc03" + "00" + "02" + // now, no floor, two sessions
		"0b000000000000000000000000000000" + "00" + "8094ebdc03" + "01" + "01" + "00010200" +
		"0a000000000000000000000000000000" + "8094ebdc03" + "8094ebdc03" + "02" + "02" +
		"010402" + "077468726565" + "000302" + "06666f7572" +
		"a7762571"
	if have := hex.EncodeToString(example().AppendTo(nil)); have != want {
		t.Errorf("the form is\n%s, want\n%s", have, want)
	}
}

// TestRestoreRefuses: a form that was cut or changed, and one that no table has, leave the table as it is.
func TestRestoreRefuses(t *testing.T) {
	whole := example().AppendTo(nil)
	table := New(twinOptions)
	table.Advance(7)
	before := table.AppendTo(nil)
	refused := func(what string, form []byte) error {
		t.Helper()
		err := table.Restore(form)
		if !errors.Is(err, ErrForm) || !bytes.Equal(table.AppendTo(nil), before) {
			t.Errorf("%s: %v", what, err)
		}
		return err
	}
	for n := range whole {
		refused("cut off", whole[:n])
	}
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 0x10
		refused("changed", changed)
	}
	// With a valid check, each field that makes no sense.
	body := whole[:len(whole)-4]
	for n := range body {
		if n > 0 {
			refused("a shorter body", sealed(body[:n]))
		}
	}
	refused("a longer body", sealed(append(bytes.Clone(body), 0)))

	// Sessions that no table has.
	for what, change := range map[string]func(old, new *session){
		"used before the one before it": func(old, new *session) { new.used = old.used - 1 },
		"born after its use":            func(_, new *session) { new.id.Birth = new.used + 1 },
		"used in the future":            func(_, new *session) { new.used++ },
		"has expired":                   func(old, _ *session) { old.id.Birth, old.used = 0, -1-twinOptions.Expiry },
		"has the id of another":         func(old, new *session) { new.id = old.id },
		"has no id":                     func(old, _ *session) { old.id = ID{} },
		"has no lowest number":          func(old, _ *session) { old.low = 0 },
		"has a result of the same entry": func(_, new *session) {
			new.numbers[new.head].index = new.numbers[new.head+1].index
		},
		"has a large result": func(_, new *session) {
			new.numbers[new.head].result.bytes = make([]byte, twinOptions.MaxResultBytes/4)
		},
		"has two numbers that are equal": func(_, new *session) {
			new.numbers[new.head+1].value = new.numbers[new.head].value
		},
	} {
		table := example()
		table.Advance(twinOptions.Expiry)
		for _, s := range table.sessions {
			s.used = table.now
		}
		change(table.idle.next, table.idle.prev)
		refused(what, table.AppendTo(nil))
	}
	many := example()
	for n := range uint64(60) {
		for client := range byte(10) {
			many.options.MaxBytes = 1 << 20
			many.Apply(Mark{ID{Client: [16]byte{20 + client}, Birth: 5}, n + 1, 1}, raftpb.Position{Index: 5}, 5)
		}
	}
	many.options.MaxBytes = twinOptions.MaxBytes
	refused("too many sessions", many.AppendTo(nil))

	other := New(Options{Expiry: time.Minute, MaxBytes: 12 << 10, MaxSessionBytes: 4 << 10})
	const want = "millrace: the sessions cannot be restored: their expiry in nanoseconds is 60000000000, and this member has 2000000000; give all members of the group the same options (CommandOptions.Sessions, Machine.Sessions), and keep them"
	if err := refused("other options", other.AppendTo(nil)); err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// FuzzRestore: what a form with a valid check says is either refused, or it is the form of the restored
// table. Such a table can be used.
func FuzzRestore(f *testing.F) {
	whole := example().AppendTo(nil)
	f.Add(whole[:len(whole)-4])
	empty := New(twinOptions).AppendTo(nil)
	f.Add(empty[:len(empty)-4])
	f.Fuzz(func(t *testing.T, body []byte) {
		table := New(twinOptions)
		if err := table.Restore(sealed(body)); err != nil {
			if !errors.Is(err, ErrForm) {
				t.Fatal(err)
			}
			return
		}
		form := table.AppendTo(nil)
		again := New(twinOptions)
		if err := again.Restore(form); err != nil || !bytes.Equal(again.AppendTo(nil), form) {
			t.Fatalf("%x became %x: %v", body, form, err)
		}
		for n := range uint64(100) {
			table.Apply(Mark{ID{Client: [16]byte{0xa}, Birth: time.Second}, n + 1, n/2 + 1}, raftpb.Position{Index: 100 + n}, 9)
			table.Keep(make([]byte, 200))
		}
		if bytes := table.bytes; bytes > twinOptions.MaxBytes || table.results.bytes > twinOptions.MaxResultBytes || table.results.bytes < 0 {
			t.Fatalf("%d bytes, results of %d", bytes, table.results.bytes)
		}
		table.Advance(time.Hour)
		if n, bytes := table.Sessions(); table.now == time.Hour && (n != 0 || bytes != 0) {
			t.Fatalf("%d sessions of %d bytes after an hour", n, bytes)
		}
	})
}
