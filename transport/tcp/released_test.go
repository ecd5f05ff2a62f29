package tcp

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/millrace/millrace/internal/golden"
	"github.com/millrace/millrace/transport"
)

// Handshakes of released versions: testdata/released/handshake-REVISION.txt, as host/frames_test.go says of
// frames. Hello and verdict keep their form in every version, so this tree reads the old bytes, and writes
// the same.

var handshakeWrite = flag.String("handshake.write", "", "TestReleasedHandshakes writes those of this tree to this file")

// handshake is a row: what is said, and how it is read.
type handshake struct {
	name  string
	bytes []byte
	value any
	read  func([]byte) (any, error)
}

func readsHello(b []byte) (any, error) {
	return readHello(bytes.NewReader(b), versionRange{3, 3})
}

func readsVerdict(b []byte) (any, error) { return readVerdict(bytes.NewReader(b)) }

// readsRefusal reads a hello that says why its sender does not continue: that is an error.
func readsRefusal(b []byte) (any, error) {
	_, err := readHello(bytes.NewReader(b), versionRange{3, 3})
	return err.Error(), nil
}

// handshakesOf returns the table. No two fields of a row have the same value.
func handshakesOf() (all []handshake) {
	from := transport.Introduction{
		ID: 1, Cluster: 11, Derived: true, Incarnation: transport.Incarnation{1, 2, 3, 15: 4}, Generation: 12, Life: 13, Past: []uint32{14, 15}, Addr: "one:7001",
		Members: []transport.Member{{ID: 1, Addr: "one:7001"}, {ID: 2, Addr: "two:7002"}, {ID: 300, Addr: "three:7003"}},
	}
	for class := transport.Class(0); class < transport.Classes; class++ {
		h := hello{versions: versionRange{3, 3}, class: class, to: 2, from: from}
		all = append(all, handshake{"hello for " + class.String(), h.append(nil), h, readsHello})
	}
	const why = "its certificate is of host 9"
	all = append(all, handshake{"hello that refuses", appendRefusal(nil, versionRange{3, 3}, 2, why), "the dialing host refuses this one: " + why, readsRefusal})
	for _, v := range []verdict{
		{code: welcome, version: 3, host: from}, {code: otherVersion, why: "other versions"}, {code: refused, why: "it was removed"},
		{code: refusedDirectory, why: "another directory"}, {code: refusedCertificate, why: why},
	} {
		all = append(all, handshake{"verdict " + string('0'+rune(v.code)), v.append(nil), v, readsVerdict})
	}
	return all
}

// TestReleasedHandshakes: this tree reads handshakes of released versions, and writes what they read.
func TestReleasedHandshakes(t *testing.T) {
	var lines golden.Lines
	for _, h := range handshakesOf() {
		lines = append(lines, golden.Line{Name: h.name, Bytes: h.bytes})
	}
	if *handshakeWrite != "" {
		if err := lines.Write(*handshakeWrite); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("../../testdata/released/handshake*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("handshakes of released versions: %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			was, err := golden.Parse(text)
			if err != nil || len(was) != len(lines) {
				t.Fatalf("%s has %d handshakes, want %d (%v)", file, len(was), len(lines), err)
			}
			for i, h := range handshakesOf() {
				if was[i].Name != h.name || !was[i].Is(h.bytes) {
					t.Errorf("%s is written as\n%x\nand was %s\n%s", h.name, h.bytes, was[i].Name, was[i].Text())
				}
				have, err := h.read(was[i].Bytes)
				if err != nil || !reflect.DeepEqual(have, h.value) {
					t.Errorf("%s says\n%+v\nand is read as\n%+v (%v)", h.name, h.value, have, err)
				}
			}
		})
	}
}
