package entry

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
	"pgregory.net/rapid"
)

func incarnationOf(id uint64) transport.Incarnation { return transport.Incarnation{1, 15: byte(id)} }

func aFound(promise time.Duration) []byte {
	data := EncodeFound(Binding{{ID: 1, Incarnation: incarnationOf(1)}, {ID: 2, Incarnation: incarnationOf(2)}, {ID: 3, Incarnation: incarnationOf(3)}})
	if promise > 0 {
		data = WithPromise(data, promise)
	}
	return data
}

// aRoster is the roster that follows from a founding entry.
func aRoster(t interface{ Fatal(...any) }, found []byte) *membership.Roster {
	b, err := DecodeFounding(found)
	if err != nil {
		t.Fatal(err)
	}
	var members []membership.Member
	for _, m := range b {
		members = append(members, membership.Member{ID: m.ID, Incarnation: m.Incarnation, Addr: "there:1"})
	}
	return membership.Founded(members)
}

// The bytes of a block are in the manifests of snapshots on disks, so they must not change.
func TestHostBlockGolden(t *testing.T) {
	one := EncodeFound(Binding{{ID: 1, Incarnation: incarnationOf(1)}})
	const roster = "29020000000101000000000101010000000000000000000000000000010774686572653a31" + "0000000000"
	for _, c := range []struct {
		block Block
		want  string
	}{
		{Block{Found: one, Roster: aRoster(t, one), PerEntry: 300},
			"021b" + "0101000100000000000000" + "01000000000000000000000000000001" + roster + "ac02" + "00"},
		{Block{Found: one, Roster: aRoster(t, one), PerEntry: 300, At: At{Version: 3, Since: 812}},
			"051b" + "0101000100000000000000" + "01000000000000000000000000000001" + roster + "ac02" + "00" + "00" + "03" + "ac06"},
		{Block{Found: one, Roster: aRoster(t, one), PerEntry: 1, HasSums: true, Last: 200,
			Sums: Sums{Commands: 0x0102030405060708, Results: 9, Whole: true, Second: 300, Count: 5}},
			"021b" + "0101000100000000000000" + "01000000000000000000000000000001" + roster + "01" + "01" + "0807060504030201" + "0900000000000000" + "01" + "ac02" + "05" + "c801"},
	} {
		if have := hex.EncodeToString(c.block.Encode()); have != c.want {
			t.Errorf("%+v is\n%s, want\n%s", c.block, have, c.want)
		}
	}
}

// What is encoded is decoded, and a block that is cut anywhere, or longer, is refused.
func TestHostBlockComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Block{
			Found:    aFound(time.Duration(rapid.IntRange(0, 1e9).Draw(t, "promise"))),
			PerEntry: rapid.Int64Range(0, MaxPerEntry).Draw(t, "per entry"),
		}
		if rapid.Bool().Draw(t, "sums") {
			b.HasSums, b.Last = true, rapid.Uint64().Draw(t, "last")
			b.Sums = Sums{rapid.Uint64().Draw(t, "commands"), rapid.Uint64().Draw(t, "results"), rapid.Bool().Draw(t, "whole"),
				rapid.Int64Range(0, int64(MaxLogTime/time.Second)).Draw(t, "second"), rapid.IntRange(0, MaxCheckpointCommands).Draw(t, "count")}
		}
		if rapid.Bool().Draw(t, "upgraded") {
			b.At = At{rapid.Uint32Min(1).Draw(t, "version"), rapid.Uint64().Draw(t, "since")}
		}
		b.Roster = aRoster(t, b.Found)
		data := b.Encode()
		have, err := DecodeBlock(data)
		if err != nil || !bytes.Equal(have.Encode(), data) || have.Last != b.Last || have.Sums != b.Sums || have.At != b.At || have.PerEntry != b.PerEntry || !bytes.Equal(have.Found, b.Found) {
			t.Fatalf("%+v comes back as %+v, %v", b, have, err)
		}
		for n := range data {
			if _, err := DecodeBlock(data[:n]); err == nil {
				t.Fatalf("%d of %d bytes are taken", n, len(data))
			}
		}
		if _, err := DecodeBlock(append(data, 0)); err == nil {
			t.Fatal("a byte too many is taken")
		}
	})
}

// FuzzHostBlock: any bytes are decoded or refused, and what is decoded has these bytes.
func FuzzHostBlock(f *testing.F) {
	f.Add((&Block{Found: aFound(0), Roster: aRoster(f, aFound(0))}).Encode())
	f.Add((&Block{PerEntry: 9}).Encode()) // restored from an archive
	f.Add((&Block{Found: aFound(time.Second), Roster: aRoster(f, aFound(time.Second)), PerEntry: 77, HasSums: true, Last: 9}).Encode())
	f.Add((&Block{Found: aFound(0), Roster: aRoster(f, aFound(0)), At: At{Version: 2, Since: 9}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := DecodeBlock(data)
		if err == nil && !bytes.Equal(b.Encode(), data) {
			t.Fatalf("%x is decoded as %+v, which is %x", data, b, b.Encode())
		}
	})
}
