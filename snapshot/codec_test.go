package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

var writeGolden = flag.Bool("write-golden", false, "write testdata/golden instead of comparing with it")

// golden is a directory with every field of the format set: two parts of a stream, a part of the host, an
// empty part, and a file.
func golden(t testing.TB) (disk vfs.FS, id ID) {
	disk, id = vfs.Memory(), ID{Index: 0x1122334455667788, Term: 0x99}
	store := openStore(t, disk)
	must(t, source{id: ID{Index: 3, Term: 1}, streams: []piece{{KindMachine, "state", []byte("abc")}}}.take(disk, store))
	first := value(store.Manifest(ID{3, 1}))(t).Parts[0]
	w := value(store.Create(id))(t)
	src := source{id: id, streams: []piece{
		{KindHost, "sessions", []byte("session table")}, {KindMachine, "empty", nil}, {KindMachine, "state", bytes.Repeat([]byte("x"), BlockBytes+1)},
	}, files: []piece{{KindFile, "sst/000007.sst", []byte("file")}}}
	rest := src.files
	src.files = nil
	must(t, src.write(disk, w))
	first.Kind, first.Name = KindMachine, "state"
	must(t, w.Reuse(first, ID{3, 1}))
	src.streams, src.files = nil, rest
	must(t, src.write(disk, w))
	must(t, w.SyncParts())
	must(t, w.Publish(Manifest{
		Cluster: 0x0102030405060708, Group: 0x1112131415161718, Index: id.Index, Term: id.Term,
		Conf:    raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}, VotersOutgoing: []uint64{1, 2, 5}, LearnersNext: []uint64{5}, AutoLeave: true},
		Members: []Member{{ID: 1, Incarnation: [16]byte{0: 0xa1, 15: 0xaf}}, {ID: 2, Incarnation: [16]byte{0: 0xb1, 15: 0xbf}}},
		Host:    []byte("host's block"), Machine: "kv-3",
	}))
	return disk, id
}

// The format does not change unnoticed. docs/internals/snapshots.md draws it.
func TestGolden(t *testing.T) {
	disk, id := golden(t)
	manifest := value(readSmall(disk, filepath.Join(testDir, id.String(), manifestFile)))(t)
	const name = "testdata/golden/manifest.hex"
	if *writeGolden {
		must(t, os.WriteFile(name, []byte(hex.Dump(manifest)), 0o644))
	}
	text := value(os.ReadFile(name))(t)
	if have := hex.Dump(manifest); have != string(text) {
		t.Errorf("the format has changed; if that is meant, raise manifestVersion, and -write-golden. Have:\n%s", have)
	}
	for i, want := range [][]byte{[]byte("session table"), nil, bytes.Repeat([]byte("x"), BlockBytes+1), []byte("abc"), []byte("file")} {
		if have := value(readSmall(disk, filepath.Join(testDir, id.String(), fmt.Sprintf("part-%08d", i))))(t); !bytes.Equal(have, want) {
			t.Errorf("part %d holds %d bytes, want the bare content of %d", i, len(have), len(want))
		}
	}
	m := value(DecodeManifest(manifest))(t)
	if m.Parts[2].Sums[0] == 0 || len(m.Parts[2].Sums) != 2 || m.Parts[4].Kind != KindFile {
		t.Errorf("%+v", m.Parts)
	}
	if id.String() != "1122334455667788-0000000000000099" || value(ParseID(id.String()))(t) != id {
		t.Error(id)
	}
}

// Parts of objects are the last addition to the format. They changed nothing of what TestGolden holds.
func TestGoldenWithObjects(t *testing.T) {
	m := Manifest{Cluster: 1, Group: 2, Index: 3, Term: 4, Machine: "kv-3", Parts: []Part{
		{Kind: KindMachine, Name: "state", Bytes: 1, SHA256: [32]byte{0xa1}, Sums: []uint32{0xb1}},
		{Kind: KindObject, Name: "000102030405060708090a0b0c0d0e0f", Bytes: BlockBytes + 1, SHA256: [32]byte{0xa2}, Sums: []uint32{0xb2, 0xb3}},
		{Kind: KindObject, Name: "000102030405060708090a0b0c0d0e0f", Bytes: 2, SHA256: [32]byte{0xa3}, Sums: []uint32{0xb4}},
		{Kind: KindObject, Name: "ff0102030405060708090a0b0c0d0e0f", SHA256: [32]byte{0xa4}},
	}}
	const name = "testdata/golden/manifest-objects.hex"
	have := hex.Dump(value(m.Append(nil))(t))
	if *writeGolden {
		must(t, os.WriteFile(name, []byte(have), 0o644))
	}
	if text := value(os.ReadFile(name))(t); have != string(text) {
		t.Errorf("the format has changed; if that is meant, raise manifestVersion, and -write-golden. Have:\n%s", have)
	}
	if first, n := m.Find(KindObject, m.Parts[1].Name); first != 1 || n != 2 || m.Parts[1].Kind.String() != "object" {
		t.Errorf("%d parts from %d on", n, first)
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, text := range []string{"", "1-1", "1122334455667788-000000000000009", "1122334455667788-0000000000000099 ", "1122334455667788_0000000000000099", "112233445566778G-0000000000000099", "112233445566778A-0000000000000099", "+122334455667788-0000000000000099"} {
		if id, err := ParseID(text); err == nil {
			t.Errorf("%q is read as %v", text, id)
		}
	}
}

// seal makes a body a manifest with a right head.
func seal(body []byte) []byte {
	b := make([]byte, headBytes, headBytes+len(body))
	copy(b, manifestMagic)
	binary.LittleEndian.PutUint32(b[8:], manifestVersion)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(body)))
	b = append(b, body...)
	binary.LittleEndian.PutUint32(b[checkAt:], manifestCheck(b))
	return b
}

// Each rule of the format, broken by itself.
func TestDecodeRefuses(t *testing.T) {
	disk, id := golden(t)
	right := value(readSmall(disk, filepath.Join(testDir, id.String(), manifestFile)))(t)
	m := value(DecodeManifest(right))(t)
	change := func(off int, b byte) []byte {
		body := bytes.Clone(right[headBytes:])
		body[off] = b
		return seal(body)
	}
	parts := bytes.Index(right[headBytes:], []byte("sessions")) - 3 // of the first part: its kind
	members := bytes.IndexByte(right[headBytes:], 0xa1) - 8
	for what, b := range map[string][]byte{
		"nothing":                  nil,
		"half a head":              right[:headBytes-1],
		"another magic":            append([]byte("x"), right[1:]...),
		"a later version":          append(append(bytes.Clone(right[:8]), 2), right[9:]...),
		"a cut end":                right[:len(right)-1],
		"something behind":         append(bytes.Clone(right), 0),
		"another check":            append(append(bytes.Clone(right[:checkAt]), right[checkAt]^1), right[checkAt+1:]...),
		"a body with more":         seal(append(bytes.Clone(right[headBytes:]), 0)),
		"a body with less":         seal(right[headBytes : len(right)-1]),
		"no body":                  seal(nil),
		"index 0":                  seal(append(append(bytes.Clone(right[headBytes:headBytes+16]), make([]byte, 8)...), right[headBytes+24:]...)),
		"an index beyond a log":    change(16+7, 0x80),
		"a term beyond elections":  change(24+7, 0x80),
		"more voters than bytes":   change(32+3, 0xff),
		"auto-leave 2":             change(members-5, 2),
		"members out of order":     change(members, 3),
		"kind 0":                   change(parts, 0),
		"kind 9":                   change(parts, 9),
		"a name beyond the end":    change(parts+2, 0xff),
		"a name with a space":      change(parts+3, ' '),
		"a name that is a parent":  seal(bytes.Replace(right[headBytes:], []byte("sst/000007.sst"), []byte("../000/007.sst"), 1)),
		"a name with an empty end": seal(bytes.Replace(right[headBytes:], []byte("sst/000007.sst"), []byte("sst/000007sst/"), 1)),
		"a part too long":          change(parts+3+8+7, 0x7f),
		"a part of negative bytes": change(parts+3+8+7, 0x80),
	} {
		var format *FormatError
		if have, err := DecodeManifest(b); !errors.As(err, &format) {
			t.Errorf("%s: %v, %+v", what, err, have)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
	part := func(kind Kind, name string) Part { return Part{Kind: kind, Name: name, Bytes: 1, Sums: []uint32{5}} }
	for what, edit := range map[string]func(*Manifest){
		"no term":                  func(m *Manifest) { m.Term = 0 },
		"a stream that comes back": func(m *Manifest) { m.Parts = append(m.Parts, m.Parts[0]) },
		"a file of two parts":      func(m *Manifest) { m.Parts = append(m.Parts, m.Parts[4]) },
		"a stream's part too long": func(m *Manifest) {
			m.Parts[0].Bytes, m.Parts[0].Sums = PartBytes+1, make([]uint32, PartBytes/BlockBytes+1)
		},
		"an object that comes back": func(m *Manifest) {
			m.Parts = append(m.Parts, part(KindObject, "0a"), part(KindObject, "0b"), part(KindObject, "0a"))
		},
		"an object's part too long": func(m *Manifest) {
			m.Parts[0].Kind, m.Parts[0].Bytes, m.Parts[0].Sums = KindObject, PartBytes+1, make([]uint32, PartBytes/BlockBytes+1)
		},
		"a kind beyond the last one": func(m *Manifest) { m.Parts[0].Kind = KindObject + 1 },
		"a checksum less":            func(m *Manifest) { m.Parts[2].Sums = m.Parts[2].Sums[:1] },
		"negative bytes":             func(m *Manifest) { m.Parts[0].Bytes = -1 },
		"bytes near the end of time": func(m *Manifest) { m.Parts[0].Kind, m.Parts[0].Bytes = KindFile, math.MaxInt64 },
		"a long version":             func(m *Manifest) { m.Machine = strings.Repeat("v", 256) },
		"a long name":                func(m *Manifest) { m.Parts[0].Name = strings.Repeat("a/", 600) + "a" },
		"a long element":             func(m *Manifest) { m.Parts[0].Name = strings.Repeat("a", 256) },
		"a large block of the host":  func(m *Manifest) { m.Host = make([]byte, MaxManifestBytes) },
		"too many members":           func(m *Manifest) { m.Members = make([]Member, MaxMembers+1) },
		"too many voters":            func(m *Manifest) { m.Conf.Voters = make([]uint64, MaxMembers+1) },
	} {
		wrong := m
		wrong.Parts = append([]Part(nil), m.Parts...)
		edit(&wrong)
		var format *FormatError
		if _, err := wrong.Append(nil); !errors.As(err, &format) {
			t.Errorf("%s: %v", what, err)
		} else {
			t.Logf("%s: %v", what, err)
		}
	}
}

// Every bit of a manifest counts.
func TestEveryBitOfAManifestCounts(t *testing.T) {
	disk, id := golden(t)
	b := value(readSmall(disk, filepath.Join(testDir, id.String(), manifestFile)))(t)
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeManifest(b); err == nil {
			t.Errorf("bit %d of byte %d does not count", bit%8, bit/8)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// A manifest comes back as it was, and its hash changes with every field.
func TestManifestsRoundTrip(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := randomManifest(rng)
		b, err := m.Append([]byte("before"))
		must(t, err)
		have := value(DecodeManifest(b[6:]))(t)
		if !reflect.DeepEqual(have, m) {
			t.Fatalf("seed %d: have %+v, want %+v", seed, have, m)
		}
		if int64(len(b)-6) != m.EncodedBytes() {
			t.Fatalf("seed %d: %d bytes, want %d", seed, len(b)-6, m.EncodedBytes())
		}
		if have.Hash() != m.Hash() {
			t.Fatalf("seed %d: hashes differ", seed)
		}
		have.Group++
		if have.Hash() == m.Hash() {
			t.Fatalf("seed %d: hashes of different manifests are equal", seed)
		}
	}
}

func randomManifest(rng *rand.Rand) Manifest {
	ids := func() (list []uint64) {
		for range rng.IntN(4) {
			list = append(list, rng.Uint64())
		}
		return list
	}
	m := Manifest{Cluster: rng.Uint64(), Group: rng.Uint64(), Index: 1 + rng.Uint64()>>1, Term: 1 + rng.Uint64()>>1,
		Conf:    raftpb.ConfState{Voters: ids(), Learners: ids(), VotersOutgoing: ids(), LearnersNext: ids(), AutoLeave: rng.IntN(2) == 0},
		Machine: strings.Repeat("v", rng.IntN(256))}
	for i := range rng.IntN(4) {
		m.Members = append(m.Members, Member{ID: uint64(i * 7), Incarnation: [16]byte{byte(rng.Uint32())}})
	}
	for range rng.IntN(100) {
		m.Host = append(m.Host, byte(rng.Uint32()))
	}
	for i := range rng.IntN(10) {
		p := Part{Kind: Kind(1 + rng.IntN(4)), Name: fmt.Sprintf("name-%d/x.%d", i, rng.IntN(9)), Bytes: rng.Int64N(9 * BlockBytes)}
		p.SHA256[rng.IntN(32)] = byte(rng.Uint32())
		for range blocksOf(p.Bytes) {
			p.Sums = append(p.Sums, rng.Uint32())
		}
		m.Parts = append(m.Parts, p)
	}
	return m
}

// What DecodeManifest accepts has exactly one encoding. The fuzzer changes the body, with a right head, so
// that it gets past the checksum.
func FuzzDecodeManifest(f *testing.F) {
	for seed := range uint64(8) {
		m := randomManifest(rand.New(rand.NewPCG(seed, 6)))
		b, err := m.Append(nil)
		must(f, err)
		f.Add(b, false)
		f.Add(b[headBytes:], true)
	}
	f.Fuzz(func(t *testing.T, b []byte, body bool) {
		if body {
			b = seal(b)
		}
		m, err := DecodeManifest(b)
		var format *FormatError
		if err != nil {
			if !errors.As(err, &format) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if again := value(m.Append(nil))(t); !bytes.Equal(again, b) {
			t.Fatalf("decoded and encoded again:\n%s, want\n%s", hex.Dump(again), hex.Dump(b))
		}
	})
}

// FuzzOpenStore opens a directory with any bytes in MANIFEST, OFFER and a part.
func FuzzOpenStore(f *testing.F) {
	m := sample(5).manifest()
	m.Parts = []Part{{Kind: KindMachine, Name: "state", Bytes: 3, SHA256: [32]byte{1}, Sums: []uint32{5}}}
	b, err := m.Append(nil)
	must(f, err)
	f.Add(b[headBytes:], []byte("abc"), true)
	f.Add(b[headBytes:], []byte("abcd"), false)
	f.Fuzz(func(t *testing.T, body, part []byte, offer bool) {
		disk := vfs.Memory()
		id := ID{5, 2}
		dir := filepath.Join(testDir, id.String())
		must(t, disk.MkdirAll(dir))
		name, piece := manifestFile, partFile(0)
		if offer {
			name, piece = offerFile, recvFile(0)
		}
		for file, content := range map[string][]byte{name: seal(body), piece: part} {
			g := value(disk.Create(filepath.Join(dir, file)))(t)
			_, err := g.WriteAt(content, 0)
			must(t, errors.Join(err, g.Close()))
		}
		store := openStore(t, disk)
		for _, id := range store.List() {
			if store.Verify(t.Context(), id) == nil {
				t.Logf("%d bytes of content", len(part))
			}
		}
		if m, found := store.Unfinished(); found {
			r, err := store.Receive(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Finish(t.Context()); err == nil {
				must(t, r.Publish())
				must(t, store.Verify(t.Context(), m.ID()))
			}
			must(t, r.Close())
		}
	})
}

// FuzzPut puts any bytes at any place: what is taken is what the offer names.
func FuzzPut(f *testing.F) {
	src := sample(5)
	_, sender := published(f, src)
	from := value(sender.Open(src.id))(f)
	state, _ := ptr(from.Manifest()).Find(KindMachine, "state")
	f.Add(state, int64(2), src.streams[1].content[2*BlockBytes:])
	f.Add(0, int64(0), src.streams[0].content)
	f.Add(state, int64(1), src.streams[1].content[:100])
	f.Fuzz(func(t *testing.T, part int, block int64, raw []byte) {
		store := openStore(t, vfs.Memory())
		to := value(store.Receive(t.Context(), from.Manifest()))(t)
		err := to.Put(part, block, raw)
		have, _ := to.Progress()
		var wrong *BlockError
		switch {
		case err != nil && (!errors.As(err, &wrong) || have != 0):
			t.Fatal(err, have)
		case err == nil && have != int64(len(raw)):
			t.Fatalf("%d bytes are taken, and %d count", len(raw), have)
		case err == nil:
			if want := value(from.ReadBlocks(part, block, len(raw)+BlockBytes-1))(t); !bytes.Equal(want[:len(raw)], raw) {
				t.Fatal("other bytes are taken than those of the snapshot")
			}
		}
	})
}
