package host_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// What a command costs is counted from outside: three hosts on TCP and on real files, in one process, with a
// look at each seam of a host (its log, its files, its transport, its state machine). One command is under
// way at a time, and heartbeats are rare, so what is seen belongs to that command.
//
// Rejected: counters in the code that copies or computes a checksum. They would count what they were put at,
// and not the copy that a later change adds.

// watched is a cluster whose seams are watched.
type watched struct {
	transports []*tcp.Transport
	configs    []host.Config
	hosts      []*host.Host
	lives      int
	applied    chan []byte // the last bytes of each command, once for each host that has applied it

	mu     sync.Mutex
	needle []byte // the part of the command under way that is looked for
	places map[uintptr]string
}

// needleBytes is enough that no other bytes are the same by chance.
const needleBytes = 24

func openWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{applied: make(chan []byte, 1000)}
	dir, peers := scratch.Dir(t), map[uint64]string{}
	for id := uint64(1); id <= 3; id++ {
		tr, err := tcp.Listen(tcp.Options{ID: id, Listen: "127.0.0.1:0", Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		w.transports = append(w.transports, tr)
		peers[id] = tr.Addr()
		w.configs = append(w.configs, host.Config{
			ID: id, Dir: filepath.Join(dir, fmt.Sprint(id)), Members: peers, SegmentBytes: 32 << 20,
			HeartbeatInterval: 2 * time.Second, ElectionTimeout: time.Minute,
		})
	}
	w.open(t)
	t.Cleanup(func() { w.close(t) })
	return w
}

// open opens all hosts, on transports that listen already.
func (w *watched) open(t *testing.T) {
	t.Helper()
	w.lives++
	for i, c := range w.configs {
		for id, addr := range c.Members {
			if id != c.ID {
				w.transports[i].SetPeer(id, addr)
			}
		}
		at := seam{w, fmt.Sprintf("host %d: ", c.ID)}
		h, err := openOne(c, watchedMachine{at}, host.WithLogger(quiet),
			host.WithTransport(watchedTransport{w.transports[i], at}),
			host.WithFS(watchedFS{vfs.OS(), at}),
			host.WithLog(func(c host.LogConfig) (host.Log, error) {
				l, err := host.OpenWAL(c)
				return watchedLog{l, at}, err
			}))
		if err != nil {
			t.Fatal(err)
		}
		w.hosts = append(w.hosts, h)
	}
	w.lead(t)
}

// lead returns when host 1 leads, and every host has applied a command of this life.
func (w *watched) lead(t *testing.T) {
	t.Helper()
	g, ctx := w.hosts[0].Group(theGroup), deadline(t)
	command := fmt.Appendf(nil, "the first command of life %30d", w.lives)
	connected := func(tr *tcp.Transport) bool { return tr.Stats().PeersUp == len(w.hosts)-1 }
	for ; ; runtime.Gosched() {
		if !slices.ContainsFunc(w.transports, func(tr *tcp.Transport) bool { return !connected(tr) }) {
			g.Campaign()
		}
		_, err := g.Propose(ctx, command)
		switch {
		case err == nil:
			w.waitFor(t, command, len(w.hosts))
			return
		case outcome.MayHaveCommitted(err) || ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}

func (w *watched) close(t *testing.T) {
	for _, h := range w.hosts {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	w.hosts = nil
}

// reopen closes all hosts and opens them again on their directories.
func (w *watched) reopen(t *testing.T) {
	t.Helper()
	w.close(t)
	for i, c := range w.configs {
		tr, err := tcp.Listen(tcp.Options{ID: c.ID, Listen: c.Members[c.ID], Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		w.transports[i] = tr
	}
	w.open(t)
}

// propose sends a new command of n bytes through the cluster, and returns it when every host has applied it.
// What is looked for are some bytes of it, at a place that later and smaller writes do not reach.
func (w *watched) propose(t *testing.T, n int) []byte {
	t.Helper()
	command := make([]byte, n)
	rand.Read(command) // no other memory has these bytes
	w.lookFor(command)
	seam{w, "host 1: "}.note("Propose", command)
	if _, err := w.hosts[0].Group(theGroup).Propose(deadline(t), command); err != nil {
		t.Fatal(err)
	}
	w.waitFor(t, command, len(w.hosts))
	return command
}

// proposeBatch sends new commands of n bytes each through the cluster, in one batch. The one in the middle is
// looked for. It returns when every host has applied that one.
func (w *watched) proposeBatch(t *testing.T, commands, n int) {
	t.Helper()
	batch := make([][]byte, commands)
	for i := range batch {
		batch[i] = make([]byte, n)
		rand.Read(batch[i])
	}
	command := batch[commands/2]
	w.lookFor(command)
	seam{w, "host 1: "}.note("Propose", command)
	if taken, err := w.hosts[0].Group(theGroup).SubmitMany(batch, make([]uint64, commands), host.NewCompletions(commands)); taken < commands {
		t.Fatalf("%d of %d commands were taken: %v", taken, commands, err)
	}
	w.waitFor(t, command, len(w.hosts))
}

// lookFor begins to look for a command.
func (w *watched) lookFor(command []byte) {
	end := len(command)
	if end > 4*vfs.BlockBytes {
		end -= 2 * vfs.BlockBytes // a log that writes whole blocks moves the rest of its last block
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needle, w.places = command[end-needleBytes:end], map[uintptr]string{}
}

// waitFor returns when a command was applied so many times.
func (w *watched) waitFor(t *testing.T, command []byte, times int) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for times > 0 {
		select {
		case end := <-w.applied:
			if bytes.HasSuffix(command, end) {
				times--
			}
		case <-timeout:
			t.Fatalf("%d hosts have not applied a command of %d bytes", times, len(command))
		}
	}
}

// checkMost compares what was counted for several commands with what most of them must cost. For a few it may
// be something else: a message is sent again, or a buffer ends within a command.
func checkMost(t *testing.T, what string, have []map[string]int, want map[string]int) {
	t.Helper()
	right, differ := 0, ""
	for _, h := range have {
		if maps.Equal(h, want) {
			right++
			continue
		}
		names := slices.Collect(maps.Keys(want))
		for name := range h {
			if _, ok := want[name]; !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			if h[name] != want[name] {
				differ += fmt.Sprintf("; %s: have %d, want %d", name, h[name], want[name])
			}
		}
		differ += "."
	}
	if right <= len(have)/2 {
		t.Errorf("%s: as wanted in %d of %d cases; the others%s", what, right, len(have), differ)
	}
}

// seam is where a host meets what is below or above it.
type seam struct {
	w    *watched
	host string
}

// note says that bytes were seen at a call. If the command is in them, and was not seen at this address
// before, the call gives the place its name.
func (s seam) note(call string, b []byte) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if at := bytes.Index(b, s.w.needle); at >= 0 && len(s.w.needle) > 0 {
		place := uintptr(unsafe.Pointer(unsafe.SliceData(b))) + uintptr(at)
		if s.w.places[place] == "" {
			s.w.places[place] = s.host + call
		}
	}
}

func (s seam) observeEntries(call string, entries []raftpb.Entry) {
	for i := range entries {
		s.note(call, entries[i].Data)
	}
}

func (s seam) noteMessages(call string, batch []transport.Envelope) {
	for i := range batch {
		s.observeEntries(call, batch[i].Message.Entries)
	}
}

type watchedTransport struct {
	*tcp.Transport
	seam
}

func (t watchedTransport) Start(r transport.Receiver) { t.Transport.Start(watchedReceiver{r, t.seam}) }

func (t watchedTransport) Send(to uint64, batch []transport.Envelope) bool {
	t.noteMessages("Send", batch)
	return t.Transport.Send(to, batch)
}

type watchedReceiver struct {
	transport.Receiver
	seam
}

func (r watchedReceiver) Receive(from uint64, batch []transport.Envelope) {
	r.noteMessages("Receive", batch)
	r.Receiver.Receive(from, batch)
}

type watchedLog struct {
	host.Log
	seam
}

func (l watchedLog) Append(writes []wal.Write) error {
	for i := range writes {
		l.observeEntries("Log.Append", writes[i].Entries)
	}
	return l.Log.Append(writes)
}

func (l watchedLog) Group(id uint64) host.GroupLog { return watchedGroupLog{l.Log.Group(id), l.seam} }

type watchedGroupLog struct {
	host.GroupLog
	seam
}

func (l watchedGroupLog) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	entries, err := l.GroupLog.Entries(lo, hi, maxBytes)
	l.observeEntries("GroupLog.Entries", entries)
	return entries, err
}

func (l watchedGroupLog) Recent(lo, hi, maxBytes uint64) ([]raftpb.Entry, bool) {
	entries, ok := l.GroupLog.Recent(lo, hi, maxBytes)
	l.observeEntries("GroupLog.Recent", entries)
	return entries, ok
}

type watchedFS struct {
	vfs.FS
	seam
}

func (f watchedFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return watchedFile{file, f.seam}, err
}

func (f watchedFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	return watchedFile{file, f.seam}, err
}

func (f watchedFS) OpenDirect(name string) (vfs.BlockWriter, error) {
	file, err := f.FS.OpenDirect(name)
	return watchedBlocks{file, f.seam}, err
}

type watchedFile struct {
	vfs.File
	seam
}

func (f watchedFile) WriteAt(p []byte, off int64) (int, error) {
	f.note("File.WriteAt", p)
	return f.File.WriteAt(p, off)
}

type watchedBlocks struct {
	vfs.BlockWriter
	seam
}

func (f watchedBlocks) WriteAt(p []byte, off int64) (int, error) {
	f.note("File.WriteAt", p)
	return f.BlockWriter.WriteAt(p, off)
}

// watchedMachine keeps no command, and says which one it was given by its end, in the place where it is.
type watchedMachine struct {
	seam
}

func (m watchedMachine) Apply(entries []statemachine.Entry) error {
	for i := range entries {
		m.note("Apply", entries[i].Data)
		d := entries[i].Data
		m.w.applied <- d[len(d)-needleBytes:]
	}
	return nil
}
