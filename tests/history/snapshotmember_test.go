package history

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
)

// What a process of the kills is: a member whose state machine counts what was applied, with clients of its
// own. It takes snapshots all the time, and says on standard output what it does:
//
//	open              it is open
//	begin PHASE       taking, sending, receiving or installing begins
//	end PHASE         and ends
//	published INDEX   a snapshot of that entry is published, or installed
//	ack CLIENT SEQ    a write was acknowledged
//	paused            its clients have no write under way
//	state COUNT HASH TWICE WRITES   the answer to "state", as of a linearizable read

// envMember has the memberSetup of a process as JSON. If it is set, the test binary is that process.
const envMember = "MILLRACE_TEST_SNAPSHOT_MEMBER"

type memberSetup struct {
	ID      uint64
	Dir     string
	Members map[uint64]string
	Clients []uint32 // their numbers, which no other process has
}

const (
	ballastPages     = 64
	ballastPageBytes = 32 << 10
	writeBytes       = 1 << 10
)

// tally is the state machine: which writes of which client were applied, and pages that writes fill.
type tally struct {
	mu      sync.Mutex
	say     func(format string, args ...any)
	opened  atomic.Bool
	writes  map[uint32][]uint64 // a bit for each write of a client
	twice   uint64
	count   uint64
	hash    uint64
	ballast []byte
}

func newTally(say func(string, ...any)) *tally {
	return &tally{say: say, writes: map[uint32][]uint64{}, ballast: make([]byte, ballastPages*ballastPageBytes)}
}

// Apply implements millrace.StateMachine. A command is the client, the number of its write, and content.
func (m *tally) Apply(batch []millrace.Command[[]byte], _ []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		c := batch[i].Value
		client, seq := binary.LittleEndian.Uint32(c), binary.LittleEndian.Uint64(c[4:])
		words := m.writes[client]
		for uint64(len(words)) <= seq/64 {
			words = append(words, 0)
		}
		if words[seq/64]&(1<<(seq%64)) != 0 {
			m.twice++
		}
		words[seq/64] |= 1 << (seq % 64)
		m.writes[client] = words
		m.count++
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %d ", m.hash, batch[i].Index)
		_, _ = h.Write(c[:12])
		m.hash = h.Sum64()
		copy(m.ballast[int(m.hash%(ballastPages*ballastPageBytes/writeBytes))*writeBytes:], c)
	}
	return nil
}

// form is everything, encoded: count, hash, twice, the ballast, and the writes.
func (m *tally) form() []byte {
	b := make([]byte, 0, len(m.ballast)+1<<16)
	for _, n := range []uint64{m.count, m.hash, m.twice} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = append(b, m.ballast...)
	return append(b, encodeWrites(m.writes)...)
}

func encodeWrites(writes map[uint32][]uint64) (b []byte) {
	for _, client := range slices.Sorted(maps.Keys(writes)) {
		b = binary.LittleEndian.AppendUint32(b, client)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(writes[client])))
		for _, w := range writes[client] {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return b
}

func decodeWrites(b []byte) (map[uint32][]uint64, error) {
	writes := map[uint32][]uint64{}
	for len(b) >= 8 {
		client, n := binary.LittleEndian.Uint32(b), int(binary.LittleEndian.Uint32(b[4:]))
		if b = b[8:]; n > len(b)/8 {
			break
		}
		words := make([]uint64, n)
		for i := range words {
			words[i] = binary.LittleEndian.Uint64(b[8*i:])
		}
		writes[client], b = words, b[8*n:]
	}
	if len(b) > 0 {
		return nil, errors.New("the writes end early")
	}
	return writes, nil
}

// taken is a snapshot of a tally. It is written in many pieces.
type taken struct {
	form []byte
	say  func(string, ...any)
}

// Snapshot implements millrace.StateMachine.
func (m *tally) Snapshot() (millrace.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.say("begin taking")
	return &taken{m.form(), m.say}, nil
}

// WriteTo implements millrace.Snapshot.
func (s *taken) WriteTo(_ context.Context, w io.Writer) error {
	for piece := range slices.Chunk(s.form, 4<<10) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// Close implements millrace.Snapshot.
func (s *taken) Close() error { return nil }

// Restore implements millrace.StateMachine.
func (m *tally) Restore(_ context.Context, r io.Reader) error {
	if m.opened.Load() {
		m.say("begin installing")
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if len(b) < 24+len(m.ballast) {
		return fmt.Errorf("the form has %d bytes, want at least %d", len(b), 24+len(m.ballast))
	}
	writes, err := decodeWrites(b[24+len(m.ballast):])
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count, m.hash, m.twice = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	m.ballast, m.writes = bytes.Clone(b[24:24+len(m.ballast)]), writes
	return nil
}

// lines writes whole lines to standard output.
type lines struct{ mu sync.Mutex }

func (l *lines) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) // one write: what the driver reads is whole, or the last
}

// runMember is the process. It ends when its standard input does, so that it does not outlive the test.
func runMember(text string) error {
	var setup memberSetup
	if err := json.Unmarshal([]byte(text), &setup); err != nil {
		return err
	}
	out := &lines{}
	m := newTally(out.say)
	n, err := millrace.Open(context.Background(), millrace.Config{
		ID: setup.ID, Dir: setup.Dir, Members: setup.Members, HeartbeatInterval: 20 * time.Millisecond,
		Snapshots: millrace.SnapshotPolicy{LogBytes: 1 << 20, KeepBytes: 1}, SnapshotBytesPerSecond: 8 << 20,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		OnEvent: func(e millrace.Event) {
			switch e := e.(type) {
			case event.SnapshotTaken:
				out.say("published %d\nend taking", e.Index)
			case event.SnapshotFailed:
				out.say("end taking")
			case event.SnapshotInstalled:
				out.say("published %d\nend installing", e.Index)
			}
		},
	}, millrace.InMemory(millrace.StateMachine[[]byte, uint64](m), millrace.Bytes()))
	if err != nil {
		return err
	}
	m.opened.Store(true)
	out.say("open")
	go watchTransfers(n.Host(), out)
	clients := startClients(n, setup.Clients, out)
	stopped := make(chan error, 1)
	go func() {
		<-n.Failed()
		stopped <- n.Err()
	}()
	asked := make(chan string)
	go func() {
		defer close(asked)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			asked <- in.Text()
		}
	}()
	for {
		select {
		case err := <-stopped:
			return err
		case command, more := <-asked:
			switch {
			case !more:
				return errors.New("the test has ended")
			case command == "pause":
				clients.Lock()
				out.say("paused")
			case command == "resume":
				clients.Unlock()
			case command == "state":
				go answerState(n, m, out)
			}
		}
	}
}

// watchTransfers says when the host sends or receives.
func watchTransfers(h *host.Host, out *lines) {
	look := time.NewTicker(time.Millisecond)
	sends, receives := false, false
	for range look.C {
		t := h.Metrics().Transfers
		for _, of := range []struct {
			was  *bool
			is   bool
			name string
		}{{&sends, t.Sending > 0, "sending"}, {&receives, t.Receiving > 0, "receiving"}} {
			if *of.was != of.is {
				*of.was = of.is
				out.say("%s %s", map[bool]string{true: "begin", false: "end"}[of.is], of.name)
			}
		}
	}
}

// startClients starts clients that write one after another. They pause while the lock is held for writing.
func startClients(n *millrace.Node[[]byte, uint64], numbers []uint32, out *lines) *sync.RWMutex {
	gate := &sync.RWMutex{}
	for _, client := range numbers {
		go func() {
			for seq := uint64(0); n.Err() == nil; seq++ {
				gate.RLock()
				c := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(make([]byte, 0, writeBytes), client), seq)
				_, err := n.Propose(context.Background(), c[:writeBytes])
				gate.RUnlock()
				if err == nil { // any other outcome is no promise
					out.say("ack %d %d", client, seq)
				}
			}
		}()
	}
	return gate
}

// answerState says what a linearizable read sees.
func answerState(n *millrace.Node[[]byte, uint64], m *tally, out *lines) {
	var line string
	err := n.View(context.Background(), millrace.Linearizable, func(millrace.ReadAt) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		ballast := fnv.New64a()
		_, _ = ballast.Write(m.ballast)
		line = fmt.Sprintf("state %d %016x-%016x %d %s", m.count, m.hash, ballast.Sum64(), m.twice, base64.StdEncoding.EncodeToString(encodeWrites(m.writes)))
		return nil
	})
	if err == nil {
		out.say("%s", strings.TrimSpace(line))
	}
}
