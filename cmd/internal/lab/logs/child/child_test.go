package child

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// memoryLog is a log in memory that outlives its Close, with one fault.
type memoryLog struct {
	mu      sync.Mutex
	entries []Entry
	fsyncs  atomic.Uint64
	compact uint64 // through this index group 0 was given up

	failAt  int                   // the append that fails; 0: none
	appends int                   // so far
	damage  func([]Entry) []Entry // what a reader is shown
}

func (m *memoryLog) library(shared bool) Library {
	return Library{Name: "memory", Shared: shared, Fsyncs: m.fsyncs.Load, Open: func(Setup) (Store, error) { return m, nil }}
}

var errMemory = errors.New("out of memory")

func (m *memoryLog) Append(batch []Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fsyncs.Add(1)
	if m.appends++; m.appends == m.failAt {
		return errMemory
	}
	m.entries = append(m.entries, batch...)
	return nil
}

func (m *memoryLog) Compact(group int, through uint64) error {
	if group == 0 {
		m.compact = through
	}
	return nil // a log may keep everything
}

func (m *memoryLog) Read(visit func(Entry) error) error {
	shown := m.entries
	if m.damage != nil {
		shown = m.damage(shown)
	}
	for _, e := range shown {
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryLog) Close() error { return nil }

// request is a short load of 8 appenders.
func request(dir string, groups int) Request {
	return Request{Dir: dir, Appenders: 8, Groups: groups, ValueBytes: 256, KeepBytes: 1 << 20, Warmup: time.Millisecond, Length: 200 * time.Millisecond, Seed: 1}
}

func TestLogsAreMeasuredAndReadBack(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			var result Result
			var err error
			r := request(t.TempDir(), 4)
			for r.Length = range labtest.Lengths(r.Length) {
				if result, err = measure(r, (&memoryLog{}).library(shared)); err != nil {
					t.Fatal(err)
				}
				if result.Ops > 0 && result.Fsyncs > 0 {
					break
				}
			}
			if result.Ops == 0 || result.Fsyncs == 0 || result.EntriesPerFsync < 1 || result.Groups != 4 || result.MBPerSec == 0 || result.P99Us == 0 {
				t.Errorf("%+v", result)
			}
		})
	}
}

// A log that holds less, more or something else than it acknowledged gets an error and no figures.
func TestLogsThatForgetAreFound(t *testing.T) {
	for want, damage := range map[string]func([]Entry) []Entry{
		"group 0 ends before entry":  func(e []Entry) []Entry { return e[:len(e)-1] },
		"of group 0 is not write":    func(e []Entry) []Entry { e[0].Data = e[1].Data; return e },
		"is not write":               func(e []Entry) []Entry { e[2].Data = bytes.Repeat([]byte{1}, 256); return e },
		"an entry of group 7 of 1":   func(e []Entry) []Entry { e[0].Group = 7; return e },
		"the last one written being": func(e []Entry) []Entry { return append(e, Entry{Index: e[len(e)-1].Index + 1}) },
		"group 0 holds entry":        func(e []Entry) []Entry { return e[1:] },
		"holds entry":                func(e []Entry) []Entry { return append(e[:1:1], e...) },
	} {
		r := request(t.TempDir(), 1)
		r.KeepBytes = 16 * 256
		var err error
		damaged := false // it takes some entries
		for r.Length = range labtest.Lengths(r.Length) {
			m := &memoryLog{}
			m.damage = func(e []Entry) []Entry {
				if e = e[m.compact:]; len(e) < 3 {
					return e
				}
				damaged = true
				return damage(e)
			}
			if _, err = measure(r, m.library(true)); damaged {
				break
			}
		}
		if !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Compacted entries may be missing, and a log is compacted each time it has grown enough.
func TestCompactedEntriesMayGo(t *testing.T) {
	r := request(t.TempDir(), 1)
	r.KeepBytes = 16 * 256
	for r.Length = range labtest.Lengths(r.Length) {
		m := &memoryLog{}
		m.damage = func(e []Entry) []Entry { return e[m.compact:] }
		if _, err := measure(r, m.library(true)); err != nil {
			t.Fatal(err)
		}
		if m.compact >= 16 {
			return
		}
	}
	t.Error("it was never compacted")
}

// An append that fails ends the load: no client waits without end, and nothing is measured.
func TestLogThatFails(t *testing.T) {
	r := request(t.TempDir(), 1)
	for r.Length = range labtest.Lengths(r.Length) {
		m := &memoryLog{failAt: 20}
		_, err := measure(r, m.library(true))
		if err != nil {
			return
		}
		if m.appends >= m.failAt {
			break
		}
	}
	t.Error("the failure of an append went unnoticed")
}

// serve sends a request to a child of this process, and returns its answer.
func serve(t *testing.T, r Request, library Library) lab.ChildAnswer[Result] {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Serve(bytes.NewReader(text), &out, library); err != nil {
		t.Fatal(err)
	}
	var answer lab.ChildAnswer[Result]
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Error != "" || answer.Result == nil {
		t.Fatalf("%s, %v", out.String(), err)
	}
	return answer
}

// Our log and the raw file on the real disk, in the way of the command: a request in, an answer out.
func TestServeOwnLogs(t *testing.T) {
	for _, library := range []Library{RawLog(), OwnLog()} {
		for _, r := range []Request{request("", 3), {Groups: 1, ValueBytes: 1024, RecoverBytes: 4 << 20, Seed: 1}} {
			t.Run(fmt.Sprintf("%s, %d appenders", library.Name, r.Appenders), func(t *testing.T) {
				r.Dir = t.TempDir()
				var answer lab.ChildAnswer[Result]
				for r.Length = range labtest.Lengths(200 * time.Millisecond) {
					if answer = serve(t, r, library); answer.Result.Ops > 0 {
						break
					}
					r.Dir = t.TempDir()
				}
				if answer.Result.Ops == 0 || answer.Result.MBPerSec == 0 || answer.Result.IsRecovery() != (r.Appenders == 0) {
					t.Errorf("%+v", answer.Result)
				}
			})
		}
	}
}

func TestServeRefusesNonsense(t *testing.T) {
	m := &memoryLog{}
	if err := Serve(strings.NewReader("{"), &bytes.Buffer{}, m.library(true)); err == nil || !strings.Contains(err.Error(), "cannot read the request") {
		t.Error(err)
	}
	for want, text := range map[string]string{
		"makes no sense":     `{"groups":0,"value_bytes":1024,"appenders":1}`,
		"a recovery of 0 by": `{"groups":1,"value_bytes":1024}`,
	} {
		var out bytes.Buffer
		if err := Serve(strings.NewReader(text), &out, m.library(true)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s", text, err, out.String())
		}
	}
}

// The raw file is overwritten many times, and its Read still returns exactly the batches that are whole.
func TestRawLogIsOverwritten(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 300 MiB")
	}
	dir := t.TempDir()
	setup := Setup{Dir: dir, Groups: 1, KeepBytes: 1 << 20}
	library := RawLog()
	store, err := library.Open(setup)
	if err != nil {
		t.Fatal(err)
	}
	data := load.NewSource(1<<20, 1).Value(load.ValueID{})
	const n = 300 // MiB, in 128
	for i := range uint64(n) {
		if err := store.Append([]Entry{{Index: i + 1, Data: data}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if store, err = library.Open(setup); err != nil {
		t.Fatal(err)
	}
	first, last := uint64(0), uint64(0)
	err = store.Read(func(e Entry) error {
		if first == 0 {
			first = e.Index
		} else if e.Index != last+1 || !bytes.Equal(e.Data, data) {
			return fmt.Errorf("entry %d after %d", e.Index, last)
		}
		last = e.Index
		return nil
	})
	if err != nil || last != n || last-first < 120 || library.Fsyncs() < n {
		t.Errorf("entries %d to %d, %d fsyncs, %v", first, last, library.Fsyncs(), err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, rawStateName), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := library.Open(setup); err == nil {
		t.Error("a spoiled state file passes")
	}
}
