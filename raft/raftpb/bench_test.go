package raftpb

import "testing"

// appendOf is an append of 16 entries of 256 bytes.
func appendOf() Message {
	m := Message{Type: MsgApp, To: 2, From: 1, Term: 5, LogTerm: 5, Index: 100000, Commit: 99990}
	for i := range 16 {
		m.Entries = append(m.Entries, Entry{Term: 5, Index: uint64(100001 + i), Data: make([]byte, 256)})
	}
	return m
}

func BenchmarkAppend(b *testing.B) {
	m := appendOf()
	buf := m.Append(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = m.Append(buf[:0])
	}
}

func BenchmarkSize(b *testing.B) {
	m := appendOf()
	for b.Loop() {
		m.Size()
	}
}

func BenchmarkUnmarshalBorrow(b *testing.B) {
	m := appendOf()
	buf := m.Append(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.UnmarshalBorrow(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	m := appendOf()
	buf := m.Append(nil)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Unmarshal(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// The decoder's own allocation is the one slice of entries.
func TestDecodeAllocations(t *testing.T) {
	m := appendOf()
	buf := m.Append(nil)
	if n := testing.AllocsPerRun(100, func() { _ = m.UnmarshalBorrow(buf) }); n > 1 {
		t.Errorf("UnmarshalBorrow of 16 entries: %v allocations, want 1", n)
	}
	heartbeat := (&Message{Type: MsgHeartbeat, To: 2, From: 1, Context: []byte("x")}).Append(nil)
	if n := testing.AllocsPerRun(100, func() { _ = m.UnmarshalBorrow(heartbeat) }); n > 0 {
		t.Errorf("UnmarshalBorrow of a heartbeat: %v allocations, want none", n)
	}
}
