package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/millrace/millrace/transport"
)

// The handshake: which hosts are welcome, which are refused, and what each end says of it.

// choosy admits only hosts of its own cluster.
type choosy struct {
	*ledger
	cluster uint64
}

func (c choosy) Introduce() transport.Introduction { return transport.Introduction{Cluster: c.cluster} }

func (c choosy) Admit(i transport.Introduction, _ string) error {
	if i.Cluster != c.cluster {
		return fmt.Errorf("host %d is of cluster %d, not of cluster %d", i.ID, i.Cluster, c.cluster)
	}
	if i.Generation == lostGeneration {
		return fmt.Errorf("in choosy: %w", &transport.DirectoryRefused{Why: "another directory"})
	}
	return nil
}

// lostGeneration is that of a directory that choosy refuses.
const lostGeneration = 99

func TestHandshakeRefusals(t *testing.T) {
	tr := listening(t, choosy{newLedger(), 0}, nil)
	other := helloOf(2, 1)
	other.from.Cluster = 8
	stranger := helloOf(3, 1)
	stranger.from.Cluster = 8
	later := helloOf(2, 1)
	later.versions = versionRange{spoken.highest + 1, spoken.highest + 2}
	unclassed := helloOf(2, 1)
	unclassed.class = transport.Classes
	wiped := helloOf(2, 1)
	wiped.from.Generation = lostGeneration
	rows := []struct {
		name string
		h    hello
		code verdictCode
		why  string
	}{
		{"later version", later, otherVersion, "the dialing host speaks versions 5 to 6 of the transport protocol, host 1 speaks versions 3 to 4"},
		{"no such class", unclassed, refused, "a class of connection that host 1 does not have"},
		{"other cluster", other, refused, "host 2 is of cluster 8, not of cluster 0"},
		{"another directory", wiped, refusedDirectory, "another directory"},
		{"meant for another host", helloOf(2, 3), refused, "host 2 dialed host 3, but this address belongs to host 1; correct the address that host 2 has for host 3"},
		{"unknown sender", helloOf(3, 1), refused, "host 3 is not in the address book of host 1; if it should join, start it with a join token, or say on host 1 where it is (SetPeer)"},
		{"unknown sender of another cluster", stranger, refused, "host 3 is of cluster 8, not of cluster 0"},
		{"our own id", helloOf(1, 1), refused, "the dialing host and the dialed host have the same id, 1"},
	}
	for _, row := range rows {
		w := dialed(t, tr)
		w.write(row.h.append(nil))
		if v, err := readVerdict(w); err != nil || v.code != row.code || !strings.Contains(v.why, row.why) {
			t.Errorf("%s: verdict %+v, error %v, want %q", row.name, v, err, row.why)
		}
		if row.code != otherVersion && row.h.class < transport.Classes { // of which the rest is not read: it may have any form
			w.closed()
		}
	}
	huge := helloOf(2, 1).append(nil)
	binary.LittleEndian.PutUint32(huge[28:], transport.MaxIntroductionBytes+1)
	flipped := helloOf(2, 1).append(nil)
	flipped[40] ^= 1
	bad := [][]byte{huge, flipped, bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 3)}
	for _, b := range bad {
		w := dialed(t, tr)
		w.write(b)
		w.closed()
	}
	tr.Close()
	if s := tr.Stats(); s.Refusals != uint64(len(rows)+len(bad)) || s.Kinds[transport.Consensus].Received != 0 {
		t.Errorf("stats %+v, want %d refusals", s, len(rows)+len(bad))
	}
}

// wipedReceiver says that it runs on a directory that choosy refuses.
type wipedReceiver struct {
	*ledger
	told chan string
}

func (w wipedReceiver) Introduce() transport.Introduction {
	return transport.Introduction{Generation: lostGeneration}
}

func (w wipedReceiver) RefusedBy(by uint64, why string) {
	select {
	case w.told <- fmt.Sprintf("host %d: %s", by, why):
	default:
	}
}

// A host whose directory is refused is told so, with the reason.
func TestRefusedDirectoryIsTold(t *testing.T) {
	other := listening(t, choosy{newLedger(), 0}, func(o *Options) { o.ID = 2 })
	other.SetPeer(1, "127.0.0.1:1")
	w := wipedReceiver{newLedger(), make(chan string, 1)}
	tr := listening(t, w, nil)
	tr.SetPeer(2, other.Addr())
	if told := next(t, w.told, "refusal"); told != "host 2: in choosy: another directory" {
		t.Errorf("told %q", told)
	}
}

func (w wipedReceiver) AdmittedBy(by uint64) {
	select {
	case w.told <- fmt.Sprintf("host %d admits", by):
	default:
	}
}

// A host that is welcome is told so: a refusal that it was told before has ended.
func TestAdmissionIsTold(t *testing.T) {
	other := listening(t, newLedger(), func(o *Options) { o.ID = 2 })
	other.SetPeer(1, "127.0.0.1:1")
	w := wipedReceiver{newLedger(), make(chan string, 1)}
	tr := listening(t, w, nil)
	tr.SetPeer(2, other.Addr())
	if told := next(t, w.told, "admission"); told != "host 2 admits" {
		t.Errorf("told %q", told)
	}
}

// A refusal, with its reason, is in the logs of the dialing host and of the refusing host. No message passes,
// and the sender gets a report.
func TestDialerIsRefused(t *testing.T) {
	here, there := make(chan string, 1000), make(chan string, 1000)
	logTo := func(lines chan string) *slog.Logger { return slog.New(slog.NewTextHandler(lineWriter(lines), nil)) }
	for name, clusters := range map[string][2]uint64{"by the one that accepts": {7, 8}, "by the one that dials": {8, 7}} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			other := listening(t, receiverOf(clusters[0], newLedger()), func(o *Options) { o.ID, o.Logger = 2, logTo(there) })
			other.SetPeer(1, "127.0.0.1:1")
			tr := listening(t, receiverOf(clusters[1], l), func(o *Options) { o.Logger = logTo(here) })
			tr.SetPeer(2, other.Addr())
			reason := "is of cluster 8, not of cluster 7"
			for line := next(t, here, "log line"); !strings.Contains(line, reason); {
				line = next(t, here, "log line")
			}
			if peer := next(t, l.unreachable, "report"); peer != 2 {
				t.Errorf("host %d reported, want 2", peer)
			}
			for clusters[0] == 7 {
				if strings.Contains(next(t, there, "log line at the other end"), reason) {
					break
				}
			}
			if s := other.Stats(); s.Kinds[transport.Consensus].Received != 0 {
				t.Errorf("%d messages got through", s.Kinds[transport.Consensus].Received)
			}
		})
	}
}

// receiverOf returns a choosy receiver in cluster 7; in cluster 8 one that belongs to it and admits every
// host.
func receiverOf(cluster uint64, l *ledger) transport.Receiver {
	if cluster == 7 {
		return choosy{l, 7}
	}
	return openTo{l, cluster}
}

type openTo struct {
	*ledger
	cluster uint64
}

func (o openTo) Introduce() transport.Introduction { return transport.Introduction{Cluster: o.cluster} }

type lineWriter chan string

func (c lineWriter) Write(b []byte) (int, error) {
	select {
	case c <- string(b):
	default:
	}
	return len(b), nil
}

// FuzzHandshake: no bytes make the handshake panic or take more memory than allowed, and what is accepted
// encodes to the same bytes.
func FuzzHandshake(f *testing.F) {
	f.Add(helloOf(2, 1).append(nil))
	f.Add(hello{versions: versionRange{9, 9}}.append(nil))
	f.Add(appendRefusal(nil, spoken, 2, "no\x1b[2J"))
	f.Add(verdict{code: refused, why: "no\x1b[2J"}.append(nil))
	f.Add(verdict{host: transport.Introduction{ID: 2, Members: []transport.Member{{ID: 1, Addr: "a:1"}}}}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b), spoken)
		if _, ok := spoken.common(h.versions); err == nil && ok && h.class < transport.Classes {
			if again := h.append(nil); !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("hello %+v is not what came: %x", h, b)
			}
			_ = judge(h, spoken, 1, true, func(transport.Introduction) error { return nil })
		}
		if v, err := readVerdict(bytes.NewReader(b)); err == nil && v.code == welcome {
			if again := v.append(nil); !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("verdict %+v is not what came: %x", v, b)
			}
		} else if len(v.why) > 4*maxReasonBytes {
			t.Fatalf("a reason of %d bytes", len(v.why))
		}
	})
}

// refusing fails the test if the transport asks it to admit a host.
type refusing struct {
	*ledger
	t *testing.T
}

func (r refusing) Admit(transport.Introduction, string) error {
	r.t.Error("a transport that is closed asks whom to admit")
	return nil
}

// A peer that dials while this host closes gets no verdict. A refusal would make it blame its address book in
// its log, and an operator would look for a configuration error after each restart.
func TestHelloWhileClosing(t *testing.T) {
	tr := listening(t, refusing{newLedger(), t}, nil)
	tr.Close()
	here, there := net.Pipe()
	defer there.Close()
	go func() { _, _ = there.Write(helloOf(2, 1).append(nil)) }()
	said := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(there)
		said <- text
	}()
	if _, _, err := tr.greet(&inbound{conn: here}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the greeting ended with %v", err)
	}
	here.Close()
	if text := next(t, said, "the end of the connection"); len(text) > 0 {
		t.Errorf("the peer was told %q", text)
	}
}
