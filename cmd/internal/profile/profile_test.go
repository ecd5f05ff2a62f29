package profile

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"math"
	"runtime/pprof"
	"strings"
	"testing"
	"text/tabwriter"
)

// message is a protocol buffer that a test writes.
type message []byte

func (m message) number(field int, value uint64) message {
	return binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3), value)
}

func (m message) body(field int, body []byte) message {
	m = binary.AppendUvarint(binary.AppendUvarint(m, uint64(field)<<3|2), uint64(len(body)))
	return append(m, body...)
}

// written is a profile with two functions, one inlined into the other, in one sample.
func written() message {
	return message(nil).
		body(2, message(nil).body(1, []byte{1, 2}).body(2, []byte{3, 30})).
		body(2, message(nil).number(1, 2).number(2, 1).number(2, 10)).
		body(4, message(nil).number(1, 1).body(4, message(nil).number(1, 11)).body(4, message(nil).number(1, 12))).
		body(4, message(nil).number(1, 2).body(4, message(nil).number(1, 13))).
		body(5, message(nil).number(1, 11).number(2, 1)).
		body(5, message(nil).number(1, 12).number(2, 2)).
		body(5, message(nil).number(1, 13).number(2, 3)).
		body(6, nil).body(6, []byte("inlined")).body(6, []byte("around")).body(6, []byte("root"))
}

func zipped(text []byte) *bytes.Buffer {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(text)
	_ = z.Close()
	return &b
}

func TestDecode(t *testing.T) {
	samples, err := Decode(zipped(written()))
	if err != nil || len(samples) != 2 {
		t.Fatalf("%v, %v", samples, err)
	}
	if have := strings.Join(samples[0].Stack, " "); have != "inlined around root" || samples[0].Nanos != 30 {
		t.Errorf("%s, %d ns", have, samples[0].Nanos)
	}
	if have := strings.Join(samples[1].Stack, " "); have != "root" || samples[1].Nanos != 10 {
		t.Errorf("%s, %d ns", have, samples[1].Nanos)
	}
	var real bytes.Buffer
	if err := pprof.StartCPUProfile(&real); err != nil {
		t.Fatal(err)
	}
	pprof.StopCPUProfile()
	if _, err := Decode(&real); err != nil {
		t.Errorf("a profile of Go: %v", err)
	}
}

// What is damaged is an error, or a profile of something else, and never a panic.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(written()))
	f.Add([]byte(written()[:20]))
	f.Add([]byte(message(nil).number(1, math.MaxUint64)))
	f.Fuzz(func(t *testing.T, text []byte) { _, _ = Decode(zipped(text)) })
}

func TestDamagedProfiles(t *testing.T) {
	for name, text := range map[string][]byte{
		"cut short":                    written()[:20],
		"a body beyond its end":        {2<<3 | 2, 200},
		"a wire type that there isn't": {2<<3 | 5},
		"a name that is not there":     message(nil).body(2, message(nil).number(1, 1).number(2, 1).number(2, 1)).body(4, message(nil).number(1, 1).body(4, message(nil).number(1, 1))).body(5, message(nil).number(1, 1).number(2, 7)),
		"one value":                    message(nil).body(2, message(nil).number(1, 1).number(2, 1)),
	} {
		if _, err := Decode(zipped(text)); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Decode(strings.NewReader("text")); err == nil {
		t.Error("text is a profile")
	}
}

// Each goroutine of a host has its stage.
func TestStages(t *testing.T) {
	const run = module + "env.(*goroutineTask).run"
	for _, tc := range []struct {
		stack  string
		stage  string
		kernel bool
	}{
		{"internal/runtime/syscall/linux.Syscall6 " + module + "host/internal/appendlane.(*Lane).RunOnce " + run, Append, true},
		{"runtime.memmove " + module + "host.(*Group).turn " + module + "host/internal/sched.(*Worker).RunOnce " + run, Turn, false},
		{"syscall.Syscall " + module + "host/internal/outbox.(*Batches).Flush " + module + "host/internal/sched.(*Worker).RunOnce " + run, Writer, true},
		{"runtime.memmove " + module + "cmd/internal/lab/load.(*Machine).Apply " + module + "host/internal/apply.(*Lane).RunOnce " + run, Apply, false},
		{"runtime.selectgo " + module + "host.(*Group).Propose " + module + "cmd/internal/lab/load.(*client).propose sync.(*WaitGroup).Go.func1", Client, false},
		{"hash/crc32.update " + module + "transport/tcp.(*Transport).serve " + module + "transport/tcp.(*Transport).accept.func1", Reader, false},
		{"runtime.futex runtime.mcall", Runtime, true},
		{"runtime.gcDrain runtime.gcBgMarkWorker", Runtime, false},
		{"main.main", Other, false},
		{"", Other, false},
	} {
		if stage, kernel := stageOf(strings.Fields(tc.stack)); stage != tc.stage || kernel != tc.kernel {
			t.Errorf("%s: %s, kernel %v; want %s, %v", tc.stack, stage, kernel, tc.stage, tc.kernel)
		}
	}
}

func TestTable(t *testing.T) {
	s := Of("async", 40, []Sample{{[]string{"runtime.futex"}, 30}, {[]string{"main.main"}, 10}})
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 1, ' ', 0)
	WriteTable(tw, "16 clients", []Shares{s, Of("nothing", 0, nil)})
	if err := tw.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(b.String()) {
		words := strings.Fields(line)
		lines[words[0]] = strings.Join(words[1:], " ")
	}
	if lines[Runtime] != "75.0 % 75.0 % 30.00 0.0 % 0.0 % 0.00" || lines[Other] != "25.0 % 0.0 % 10.00 0.0 % 0.0 % 0.00" || !strings.HasPrefix(lines["all"], "100.0 % 75.0 % 40.00") {
		t.Errorf("%q\n%s", lines, b.String())
	}
}
