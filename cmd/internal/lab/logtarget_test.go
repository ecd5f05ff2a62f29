package lab

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
)

// memoryLog is a log in memory that outlives its Close, with one fault.
type memoryLog struct {
	mu      sync.Mutex
	entries []LogEntry
	fsyncs  atomic.Uint64
	compact uint64 // through this index group 0 was given up

	failAt  int                         // the append that fails; 0: none
	appends int                         // so far
	damage  func([]LogEntry) []LogEntry // what a reader is shown
}

func (m *memoryLog) library(shared bool) LogLibrary {
	return LogLibrary{Name: "memory", Shared: shared, Fsyncs: m.fsyncs.Load, Open: func(LogSetup) (LogStore, error) { return m, nil }}
}

var errMemory = errors.New("out of memory")

func (m *memoryLog) Append(batch []LogEntry) error {
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
	return nil // it keeps everything, as a log may
}

func (m *memoryLog) Read(visit func(LogEntry) error) error {
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
func request(dir string, groups int) LogRequest {
	return LogRequest{Dir: dir, Appenders: 8, Groups: groups, ValueBytes: 256, KeepBytes: 1 << 20, Warmup: time.Millisecond, Length: 30 * time.Millisecond, Seed: 1}
}

func TestLogsAreMeasuredAndReadBack(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			m := &memoryLog{}
			result, err := measureLog(request(t.TempDir(), 4), m.library(shared))
			if err != nil {
				t.Fatal(err)
			}
			if result.Ops == 0 || result.Fsyncs == 0 || result.EntriesPerFsync < 1 || result.Groups != 4 || result.MBPerSec == 0 || result.P99Us == 0 {
				t.Errorf("%+v", result)
			}
		})
	}
}

// A log that holds less, more or other than it acknowledged gives no figures, but a sentence.
func TestLogsThatForgetAreFound(t *testing.T) {
	for want, damage := range map[string]func([]LogEntry) []LogEntry{
		"group 0 ends before entry":  func(e []LogEntry) []LogEntry { return e[:len(e)-1] },
		"of group 0 is not write":    func(e []LogEntry) []LogEntry { e[0].Data = e[1].Data; return e },
		"is not write":               func(e []LogEntry) []LogEntry { e[2].Data = bytes.Repeat([]byte{1}, 256); return e },
		"an entry of group 7 of 1":   func(e []LogEntry) []LogEntry { e[0].Group = 7; return e },
		"the last one written being": func(e []LogEntry) []LogEntry { return append(e, LogEntry{Index: e[len(e)-1].Index + 1}) },
		"group 0 holds entry":        func(e []LogEntry) []LogEntry { return e[1:] },
		"holds entry":                func(e []LogEntry) []LogEntry { return append(e[:1:1], e...) },
	} {
		m := &memoryLog{}
		m.damage = func(e []LogEntry) []LogEntry { return damage(e[m.compact:]) }
		r := request(t.TempDir(), 1)
		r.KeepBytes = 16 * 256
		_, err := measureLog(r, m.library(true))
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// What was compacted is not missed; and a log is compacted as often as it has grown enough.
func TestCompactedEntriesMayGo(t *testing.T) {
	m := &memoryLog{}
	r := request(t.TempDir(), 1)
	r.KeepBytes = 16 * 256
	m.damage = func(e []LogEntry) []LogEntry { return e[m.compact:] }
	if _, err := measureLog(r, m.library(true)); err != nil || m.compact < 16 {
		t.Errorf("compacted through %d, %v", m.compact, err)
	}
}

// An append that fails ends the load: nobody waits for ever, and nothing is measured.
func TestLogThatFails(t *testing.T) {
	m := &memoryLog{failAt: 20}
	if _, err := measureLog(request(t.TempDir(), 1), m.library(true)); err == nil {
		t.Error("the failure of an append went unnoticed")
	}
}

// Our own logs on the real disk, by the way that the command goes: a request in, an answer out.
func TestServeOwnLogs(t *testing.T) {
	for _, library := range []LogLibrary{RawLog(), OwnLog()} {
		for _, r := range []LogRequest{request("", 3), {Groups: 1, ValueBytes: 1024, RecoverBytes: 4 << 20, Seed: 1}} {
			t.Run(fmt.Sprintf("%s, %d appenders", library.Name, r.Appenders), func(t *testing.T) {
				r.Dir = t.TempDir()
				text, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				if err := ServeLog(bytes.NewReader(text), &out, library); err != nil {
					t.Fatal(err)
				}
				var answer logAnswer
				if err := json.Unmarshal(out.Bytes(), &answer); err != nil || answer.Error != "" || answer.Result == nil {
					t.Fatalf("%s, %v", out.String(), err)
				}
				if answer.Result.Ops == 0 || answer.Result.MBPerSec == 0 || answer.Result.isRecovery() != (r.Appenders == 0) {
					t.Errorf("%+v", answer.Result)
				}
			})
		}
	}
}

func TestServeRefusesNonsense(t *testing.T) {
	m := &memoryLog{}
	if err := ServeLog(strings.NewReader("{"), &bytes.Buffer{}, m.library(true)); err == nil || !strings.Contains(err.Error(), "cannot read the request") {
		t.Error(err)
	}
	for want, text := range map[string]string{
		"makes no sense":     `{"groups":0,"value_bytes":1024,"appenders":1}`,
		"a recovery of 0 by": `{"groups":1,"value_bytes":1024}`,
	} {
		var out bytes.Buffer
		if err := ServeLog(strings.NewReader(text), &out, m.library(true)); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v, %s", text, err, out.String())
		}
	}
}

// What a parent makes of children that misbehave.
func TestChildrenThatMisbehave(t *testing.T) {
	sh := func(script string) LogChild { return LogChild{Name: "x", Command: []string{"sh", "-c", script}} }
	for want, c := range map[string]LogChild{
		"exit status 3: it broke; badly":          sh("echo it broke >&2; echo badly >&2; exit 3"),
		"gave no answer that can be read":         sh("echo hello"),
		"neither a result nor an error":           sh("echo {}"),
		"no such disk":                            sh(`echo '{"error":"no such disk"}'`),
		"executable file not found":               {Name: "x", Command: []string{"no-such-program-as-this"}},
		ErrMismatch.Error() + ": entry 5 is gone": sh(`echo '{"error":"verification failed: entry 5 is gone","mismatch":true}'`),
	} {
		_, err := c.measure(t.Context(), LogRequest{})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrMismatch) != strings.HasPrefix(want, ErrMismatch.Error()) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	got, err := sh(`cat >/dev/null; echo '{"result":{"ops":5,"groups":2}}'`).measure(t.Context(), LogRequest{})
	if err != nil || got.Ops != 5 || got.Groups != 2 || got.Pipeline != "x" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestErrorOutputIsBounded(t *testing.T) {
	var last tail
	for range 100 {
		fmt.Fprint(&last, strings.Repeat("x", 1000), "end")
	}
	if len(last.kept) != mostTailBytes || !strings.HasSuffix(last.text(), "end") {
		t.Errorf("%d bytes", len(last.kept))
	}
}

// scripted is a log whose children answer as the shell script says.
func scripted(name, script string, peer bool) LogChild {
	return LogChild{Name: name, Command: []string{"sh", "-c", script}, Peer: peer}
}

func logPlan(t *testing.T, logs ...LogChild) LogPlan {
	return LogPlan{Logs: logs, Appenders: []int{1, 4}, Groups: []int{1}, ValueBytes: 1024, KeepBytes: 1 << 20, Duration: time.Second, Runs: 3, Dir: t.TempDir(), Seed: 1}
}

const goodChild = `cat >/dev/null; echo '{"result":{"ops":5,"ops_per_sec":7,"groups":1,"clients":1}}'`

// A peer that fails is left out and named; our own failing ends the run; so does any log that lost something.
func TestRunLogsGoesOnWithoutAPeer(t *testing.T) {
	plan := logPlan(t, scripted(RawLogName, goodChild, false), scripted("bbolt", "exit 1", true))
	plan.Missing = []string{"etcd-wal: it is not there"}
	report, err := RunLogs(t.Context(), plan, silence{})
	if err != nil || len(report.Rows) != 2 || report.Rows[0].Runs != 3 || len(report.Missing) != 2 || !strings.HasPrefix(report.Missing[1], "bbolt, 1 appender, 1 group failed") {
		t.Fatalf("%+v, %v", report, err)
	}
	leftBehind(t, plan.Dir)

	plan.Logs[0] = scripted(RawLogName, "exit 1", false)
	if report, err := RunLogs(t.Context(), plan, silence{}); report != nil || err == nil {
		t.Errorf("%+v, %v", report, err)
	}
	plan.Logs[0] = scripted("bbolt", `echo '{"error":"gone","mismatch":true}'`, true)
	if report, err := RunLogs(t.Context(), plan, silence{}); report != nil || !errors.Is(err, ErrMismatch) {
		t.Errorf("%+v, %v", report, err)
	}
	leftBehind(t, plan.Dir)
}

func TestLogPlanCheckNamesTheFlag(t *testing.T) {
	for flag, spoil := range map[string]func(*LogPlan){
		"--appenders":   func(p *LogPlan) { p.Appenders = []int{0} },
		"--groups":      func(p *LogPlan) { p.Groups = []int{mostGroups + 1} },
		"--value-bytes": func(p *LogPlan) { p.ValueBytes = leastValueBytes - 1 },
		"--keep-mib":    func(p *LogPlan) { p.KeepBytes = 0 },
		"--recover-mib": func(p *LogPlan) { p.RecoverBytes = -1 },
		"--duration":    func(p *LogPlan) { p.Duration = 0 },
		"--warmup":      func(p *LogPlan) { p.Warmup = -1 },
		"--runs":        func(p *LogPlan) { p.Runs = 0 },
		"--dir":         func(p *LogPlan) { p.Dir = "/does/not/exist" },
	} {
		plan := logPlan(t)
		spoil(&plan)
		_, err := RunLogs(t.Context(), plan, silence{})
		if !errors.Is(err, ErrRefused) || !strings.HasPrefix(err.Error(), flag+": ") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	plan := logPlan(t)
	plan.Appenders, plan.ValueBytes = []int{100_000}, 1<<20
	if err := plan.Check(); err == nil || !strings.Contains(err.Error(), "are more than 1024 MiB in memory") {
		t.Error(err)
	}
}

// The guard: no directory is made where there is not the room that a run may take.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	_, err := makeWorkDir(dir, 1<<62)
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "MiB free and the bench needs at least 4398046511104 MiB") {
		t.Error(err)
	}
	leftBehind(t, dir)
	if need := logPlan(t).needBytes(); need < 2<<30 {
		t.Errorf("a small plan asks for %d bytes: less than 64 groups with segments of their own take", need)
	}
}

// The raw file goes round many times and still knows what it holds.
func TestRawLogGoesRound(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 300 MiB")
	}
	dir := t.TempDir()
	setup := LogSetup{Dir: dir, Groups: 1, KeepBytes: 1 << 20}
	library := RawLog()
	store, err := library.Open(setup)
	if err != nil {
		t.Fatal(err)
	}
	data := newValueSource(1<<20, 1).value(valueID{})
	const n = 300 // MiB, in 128
	for i := range uint64(n) {
		if err := store.Append([]LogEntry{{Index: i + 1, Data: data}}); err != nil {
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
	err = store.Read(func(e LogEntry) error {
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
		t.Error("a spoiled end passes")
	}
}
