package crcjoin

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// naive is the sum of two strings of bytes one after the other.
func naive(a, b []byte) uint32 {
	whole := append(append([]byte(nil), a...), b...)
	return crc32.Checksum(whole, crc32.MakeTable(crc32.Castagnoli))
}

func check(t testing.TB, a, b []byte) {
	t.Helper()
	want := naive(a, b)
	if have := Join(Sum(a), Sum(b), len(b)); have != want {
		t.Fatalf("%d and %d bytes: joined %08x, want %08x", len(a), len(b), have, want)
	}
	if have := Update(Sum(a), b); have != want {
		t.Fatalf("%d and %d bytes: updated %08x, want %08x", len(a), len(b), have, want)
	}
	if have := Rest(want, Sum(a), len(b)); have != Sum(b) {
		t.Fatalf("%d and %d bytes: the rest has %08x, want %08x", len(a), len(b), have, Sum(b))
	}
}

func TestJoin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for n := range 300 {
		check(t, bytes(rng.IntN(300)), bytes(n))
	}
	for bits := 9; bits <= 22; bits++ {
		for _, n := range []int{1<<bits - 1, 1 << bits, 1<<bits + 1} {
			check(t, bytes(rng.IntN(1000)), bytes(n))
		}
	}
}

// A gigabyte that no test allocates is the same as its parts. An int of 32 bits holds it.
func TestJoinOfManyBytes(t *testing.T) {
	const a, b = 0x1234_5678, 0x9abc_def0
	if have, want := Join(Join(a, 0, 1<<30), b, 12345), Join(a, b, 1<<30+12345); have != want {
		t.Errorf("%08x, want %08x", have, want)
	}
}

// Which bytes came first, and how many, is a part of a sum.
func TestJoinKnowsOrderAndLength(t *testing.T) {
	a, b := Sum([]byte("one")), Sum([]byte("three"))
	right := Join(a, b, 5)
	for name, wrong := range map[string]uint32{"order": Join(b, a, 3), "length": Join(a, b, 4), "length of the first": Join(a, b, 3)} {
		if wrong == right {
			t.Errorf("a wrong %s makes the same sum", name)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	b := make([]byte, 1000)
	if n := testing.AllocsPerRun(100, func() { Join(Sum(b), Update(7, b), len(b)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzJoin(f *testing.F) {
	f.Add([]byte("one"), []byte("three"))
	f.Add([]byte(nil), []byte{0})
	f.Fuzz(func(t *testing.T, a, b []byte) { check(t, a, b) })
}

func BenchmarkJoin(b *testing.B) {
	for name, n := range map[string]int{"1000": 1000, "1024": 1024, "50000": 50_000} {
		b.Run(name, func(b *testing.B) {
			v := uint32(1)
			for b.Loop() {
				v = Join(v, 5, n)
			}
		})
	}
}

func BenchmarkSum(b *testing.B) {
	for name, n := range map[string]int{"100": 100, "1000": 1000, "50000": 50_000} {
		p := make([]byte, n)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Sum(p)
			}
		})
	}
}
