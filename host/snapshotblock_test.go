package host

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/membership"
	"pgregory.net/rapid"
)

func aFound(promise time.Duration) []byte {
	data := encodeFound(binding{{1, incarnationOf(1)}, {2, incarnationOf(2)}, {3, incarnationOf(3)}})
	if promise > 0 {
		data = withPromise(data, promise)
	}
	return data
}

// aRoster is the roster that follows from a founding entry.
func aRoster(t interface{ Fatal(...any) }, found []byte) *membership.Roster {
	b, err := decodeFounding(found)
	if err != nil {
		t.Fatal(err)
	}
	var members []membership.Member
	for _, m := range b {
		members = append(members, membership.Member{ID: m.id, Incarnation: m.incarnation, Addr: "there:1"})
	}
	return membership.Founded(members)
}

// The bytes of a block are in the manifests of snapshots on disks, so they must not change.
func TestHostBlockGolden(t *testing.T) {
	one := encodeFound(binding{{1, incarnationOf(1)}})
	const roster = "29020000000101000000000101010000000000000000000000000000010774686572653a31" + "0000000000"
	for _, c := range []struct {
		block hostBlock
		want  string
	}{
		{hostBlock{found: one, roster: aRoster(t, one), perEntry: 300},
			"021b" + "0101000100000000000000" + "01000000000000000000000000000001" + roster + "ac02" + "00"},
		{hostBlock{found: one, roster: aRoster(t, one), perEntry: 1, hasSums: true, last: 200,
			sums: divergence.State{Commands: 0x0102030405060708, Results: 9, Whole: true, Second: 300, Count: 5}},
			"021b" + "0101000100000000000000" + "01000000000000000000000000000001" + roster + "01" + "01" + "0807060504030201" + "0900000000000000" + "01" + "ac02" + "05" + "c801"},
	} {
		if have := hex.EncodeToString(c.block.encode()); have != c.want {
			t.Errorf("%+v is\n%s, want\n%s", c.block, have, c.want)
		}
	}
}

// What is encoded is decoded, and a block that is cut anywhere, or longer, is refused.
func TestHostBlockComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := hostBlock{
			found:    aFound(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "promise"))),
			perEntry: rapid.Int64Range(0, maxPerEntry).Draw(t, "per entry"),
		}
		if rapid.Bool().Draw(t, "sums") {
			b.hasSums, b.last = true, rapid.Uint64().Draw(t, "last")
			b.sums = divergence.State{Commands: rapid.Uint64().Draw(t, "commands"), Results: rapid.Uint64().Draw(t, "results"), Whole: rapid.Bool().Draw(t, "whole"),
				Second: rapid.Int64Range(0, int64(maxLogTime/time.Second)).Draw(t, "second"), Count: rapid.IntRange(0, divergence.MaxCommands).Draw(t, "count")}
		}
		b.roster = aRoster(t, b.found)
		data := b.encode()
		have, err := decodeHostBlock(data)
		if err != nil || !bytes.Equal(have.encode(), data) || have.last != b.last || have.sums != b.sums || have.perEntry != b.perEntry || !bytes.Equal(have.found, b.found) {
			t.Fatalf("%+v comes back as %+v, %v", b, have, err)
		}
		for n := range data {
			if _, err := decodeHostBlock(data[:n]); err == nil {
				t.Fatalf("%d of %d bytes are taken", n, len(data))
			}
		}
		if _, err := decodeHostBlock(append(data, 0)); err == nil {
			t.Fatal("a byte too many is taken")
		}
	})
}

// FuzzHostBlock: any bytes are decoded or refused, and what is decoded has these bytes.
func FuzzHostBlock(f *testing.F) {
	f.Add((&hostBlock{found: aFound(0), roster: aRoster(f, aFound(0))}).encode())
	f.Add((&hostBlock{perEntry: 9}).encode()) // restored from an archive
	f.Add((&hostBlock{found: aFound(time.Second), roster: aRoster(f, aFound(time.Second)), perEntry: 77, hasSums: true, last: 9}).encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := decodeHostBlock(data)
		if err == nil && !bytes.Equal(b.encode(), data) {
			t.Fatalf("%x is decoded as %+v, which is %x", data, b, b.encode())
		}
	})
}
