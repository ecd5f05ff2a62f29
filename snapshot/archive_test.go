package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// archived returns the archive of the golden snapshot.
func archived(t testing.TB) []byte {
	t.Helper()
	disk, id := golden(t)
	r := value(openStore(t, disk).Open(id))(t)
	defer func() { must(t, r.Close()) }()
	var b bytes.Buffer
	n := value(r.WriteArchive(context.Background(), &b))(t)
	if n != int64(b.Len()) {
		t.Fatalf("WriteArchive says %d bytes, and has written %d", n, b.Len())
	}
	return b.Bytes()
}

func readArchive(b []byte) error {
	a, err := OpenArchive(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return a.Verify(context.Background())
}

func TestGoldenArchive(t *testing.T) {
	const name = "testdata/golden/archive.hex"
	b := archived(t)
	// The manifest has a golden file of its own, and the content is bare.
	have := hex.Dump(b[:64]) + hex.Dump(b[len(b)-64:]) + fmt.Sprintf("%d bytes, SHA-256 %x\n", len(b), sha256.Sum256(b))
	if *writeGolden {
		must(t, os.WriteFile(name, []byte(have), 0o644))
	}
	if text := value(os.ReadFile(name))(t); have != string(text) {
		t.Error("the format of archives has changed; if that is meant, raise archiveVersion, and -write-golden")
	}
	must(t, readArchive(b))
}

// An archive that is cut anywhere, or has a wrong bit anywhere, or is too long, is refused with a sentence.
func TestArchiveRefuses(t *testing.T) {
	good := archived(t)
	refused := func(b []byte, what string, at int) {
		t.Helper()
		var wrong *ArchiveError
		if err := readArchive(b); !errors.As(err, &wrong) {
			t.Fatalf("%s %d of %d: %v", what, at, len(good), err)
		}
	}
	for at := 0; at < len(good); at += 1 + len(good)/1500 {
		refused(good[:at], "cut at", at)
		b := bytes.Clone(good)
		b[at] ^= 1 << (at % 8)
		refused(b, "flipped at", at)
	}
	refused(append(bytes.Clone(good), 0), "longer than", len(good))
	lie := bytes.Clone(good[:archiveHeadBytes])
	binary.LittleEndian.PutUint32(lie[12:], MaxManifestBytes)
	refused(lie, "a length without a manifest at", 12)
	binary.LittleEndian.PutUint32(lie[12:], 1<<31)
	refused(lie, "a length beyond the bound at", 12)
}

// What an archive has can be received, and is the snapshot that it was made of.
func TestArchiveIsReceived(t *testing.T) {
	disk, id := golden(t)
	b := archived(t)
	a := value(OpenArchive(bytes.NewReader(b)))(t)
	to := openStore(t, disk)
	must(t, to.Remove(id))
	r := value(to.Receive(context.Background(), a.Manifest()))(t)
	for {
		part, block, raw, err := a.Next()
		if err != nil {
			break
		}
		must(t, r.Put(part, block, raw))
	}
	must(t, a.Verify(context.Background()))
	must(t, r.Finish(context.Background()))
	must(t, r.Publish())
	again := value(to.Open(id))(t)
	var copied bytes.Buffer
	value(again.WriteArchive(context.Background(), &copied))(t)
	if !bytes.Equal(copied.Bytes(), b) {
		t.Error("the archive of what was received differs")
	}
	must(t, again.Close())
}

func FuzzArchive(f *testing.F) {
	disk := vfs.Memory()
	store := openStore(f, disk)
	must(f, source{id: ID{Index: 3, Term: 1}, streams: []piece{{KindMachine, "state", []byte("abc")}, {KindHost, "sessions", nil}}}.take(disk, store))
	r := value(store.Open(ID{Index: 3, Term: 1}))(f)
	var small bytes.Buffer
	value(r.WriteArchive(context.Background(), &small))(f)
	must(f, r.Close())
	f.Add(small.Bytes())
	f.Add([]byte(archiveMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := OpenArchive(bytes.NewReader(b))
		if err != nil {
			return
		}
		if err := a.Verify(context.Background()); err != nil {
			return
		}
		m := a.Manifest()
		encoded := value(m.Append(nil))(t)
		if want := int64(archiveHeadBytes+len(encoded)) + m.Bytes() + 32; int64(len(b)) != want {
			t.Errorf("an archive of %d bytes is whole, want %d", len(b), want)
		}
	})
}
