package host

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/transport/cert"
)

// brokenCaller is a Caller of which one method panics, or ends its goroutine.
type brokenCaller struct {
	*echoCaller
	method string
	how    func()
	called chan string
}

func (c *brokenCaller) at(method string) {
	if c.method == method {
		c.called <- method
		c.how()
	}
}

func (c *brokenCaller) Committed(r outcome.Receipt)                   { c.at("Committed"); c.echoCaller.Committed(r) }
func (c *brokenCaller) Failed(err error)                              { c.at("Failed"); c.echoCaller.Failed(err) }
func (c *brokenCaller) Duplicate(_ outcome.Receipt, _ []byte, _ bool) { c.at("Duplicate") }

// brokenMachine gives callers nothing, and cannot say what it is doing.
type brokenMachine struct{ end func() }

func (m brokenMachine) Apply(batch []statemachine.Command) error {
	if string(batch[0].Data) == "break" {
		m.end()
	}
	return nil
}

func (m brokenMachine) Callee() string { panic("Callee is broken") }

// The functions of a user of package host, beside those of TestUserFunctions: the calls, the error or line in
// the log, and whether the machine or the group may be lost by runtime.Goexit.
var hostFunctions = []struct {
	name  string
	calls []string // the last one is told to the broken caller
	says  string
}{
	{"Committed", []string{"a"}, "Committed of the Caller"},
	{"Duplicate", []string{"twice", "twice"}, "Duplicate of the Caller"},
	{"Failed", []string{"late"}, "Failed of the Caller"},
	{"Apply", []string{"break"}, "Callee, and a function that it should have named,"},
}

// A function of a user of package host costs what docs/howto/embed.md says, and no process: not the other
// group of the host, nor the closing.
func TestUserFunctionsOfHosts(t *testing.T) {
	for _, f := range hostFunctions {
		for how, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
			t.Run(f.name+"/"+how, func(t *testing.T) { breakHost(t, f.name, f.calls, f.says, how, end) })
		}
	}
}

func breakHost(t *testing.T, name string, commands []string, says, how string, end func()) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var log lockedText
	h, err := Open(ctx, Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	open := func(id uint64) *Group {
		g, err := h.OpenGroup(ctx, GroupConfig{ID: id}, Commands(brokenMachine{end}, statemachine.CommandOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.WaitLeader(ctx); err != nil {
			t.Fatal(err)
		}
		return g
	}
	g, other := open(1), open(2)
	b := &brokenCaller{newEchoCaller(), name, end, make(chan string, 4)}
	mark := &session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1, Low: 1}
	for i, command := range commands {
		var owner outcome.Caller = b
		first := newEchoCaller()
		if i < len(commands)-1 {
			owner = first
		}
		c := &Call{Data: append(make([]byte, CallRoom), command...), Owner: owner}
		switch command {
		case "twice":
			c.Session = mark
		case "late":
			c.Session = &session.Mark{ID: session.ID{Client: [16]byte{2}, Birth: 1 << 60}, Number: 1, Low: 1}
		}
		if err := g.Call(c); err != nil {
			t.Fatal(err)
		}
		if owner == outcome.Caller(first) {
			<-first.committed
		}
	}
	if name != "Apply" {
		<-b.called
	} else if err := <-b.failed; how == "panic" && !strings.Contains(err.Error(), says) {
		t.Errorf("the caller is told %v, want %q", err, says)
	}
	for _, g := range []*Group{g, other} {
		if g != other && (how == "goexit" || name == "Apply") {
			continue // the machine may be halted, or the group stopped
		}
		e := newEchoCaller()
		if err := g.Call(e.call("afterwards")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-e.committed:
		case err := <-e.failed:
			t.Errorf("afterwards, in group %d: %v", g.id, err)
		}
	}
	if err := h.Close(ctx); err != nil && ctx.Err() != nil {
		t.Errorf("Close: %v", err)
	}
	if text := log.String(); name != "Apply" && !strings.Contains(text, says) {
		t.Errorf("the log does not name %q:\n%s", says, text)
	}
}

// lockedText is a writer of several goroutines.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A machine whose Applied ends the goroutine of OpenGroup does not take the id of its group for good.
func TestGoexitInOpenGroup(t *testing.T) {
	h := openTestHostWith(t, 1, func(*Config) {})
	applied := func() (uint64, error) { runtime.Goexit(); return 0, nil }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := h.OpenGroup(t.Context(), GroupConfig{ID: 7}, Commands(&echoMachine{}, statemachine.CommandOptions{Applied: applied}))
		t.Errorf("OpenGroup returned %v", err)
	}()
	<-ended
	if _, err := h.OpenGroup(t.Context(), GroupConfig{ID: 7}, Commands(&echoMachine{}, statemachine.CommandOptions{})); err != nil {
		t.Error(err)
	}
}

// A source of certificates, or a clock for them, that breaks in Open is a sentence, and nothing is held: the
// next Open works.
func TestUserFunctionsOfTLS(t *testing.T) {
	good := tlsFiles(t, testCA(t, "CA"), 1, time.Hour)
	source := func() (*cert.Credentials, error) {
		return cert.Files{Cert: good.CertFile, Key: good.KeyFile, CA: good.CAFile}.Load()
	}
	dir := scratch.Dir(t)
	open := func(s *TLS) error {
		h, err := Open(t.Context(), Config{ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"}, TLS: s}, WithLogger(quiet))
		if err == nil {
			err = h.Close(t.Context())
		}
		return err
	}
	for name, s := range map[string]func(func()) *TLS{
		"Source": func(end func()) *TLS {
			return &TLS{Source: func() (*cert.Credentials, error) { end(); return source() }}
		},
		"Now": func(end func()) *TLS { return &TLS{Source: source, Now: func() time.Time { end(); return time.Now() }} },
	} {
		if err, want := open(s(func() { panic("boom") })), name+" of Config.TLS panicked: boom"; err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s panics: %v, want %q", name, err, want)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			t.Errorf("%s ends its goroutine, and Open returned %v", name, open(s(runtime.Goexit)))
		}()
		<-ended
		if err := open(s(func() {})); err != nil {
			t.Errorf("%s works: %v", name, err)
		}
	}
}

// deliveringMachine breaks where it gives results.
type deliveringMachine struct{ brokenMachine }

func (m deliveringMachine) Apply([]statemachine.Command) error   { return nil }
func (m deliveringMachine) Deliver(batch []statemachine.Command) { _ = m.brokenMachine.Apply(batch) }
func (m deliveringMachine) Callee() string                       { return "Deliver" }

// Deliver that panics, or ends its goroutine, halts the machine of its member.
func TestBrokenDeliver(t *testing.T) {
	for how, end := range map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			h, err := Open(t.Context(), Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}}, WithLogger(quiet))
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close(context.Background())
			g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, Commands(deliveringMachine{brokenMachine{end}}, statemachine.CommandOptions{}))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.WaitLeader(t.Context()); err != nil {
				t.Fatal(err)
			}
			e := newEchoCaller()
			c := e.call("break")
			if err := g.Call(c); err != nil {
				t.Fatal(err)
			}
			<-e.committed
			for g.Halted() == nil {
				if t.Context().Err() != nil {
					t.Fatal("the machine is not halted")
				}
				runtime.Gosched()
			}
			if says := g.Halted().Error(); !strings.Contains(says, "Deliver") {
				t.Errorf("halted: %s", says)
			}
		})
	}
}

// shyMachine does not say whether it keeps its commands.
type shyMachine struct{ kept chan []byte }

func (m *shyMachine) BorrowsData() bool { panic("boom") }

func (m *shyMachine) Apply(entries []statemachine.Entry) error {
	for i := range entries {
		m.kept <- entries[i].Data
	}
	return nil
}

// A machine that panics when it is asked whether it borrows counts as one that keeps its commands.
func TestABorrowerThatPanics(t *testing.T) {
	var lines lockedText
	h, err := Open(t.Context(), Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}},
		WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close(context.Background()) }()
	m := &shyMachine{make(chan []byte, 10)}
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1, Volatile: true}, m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range cap(m.kept) {
		if _, err := g.Propose(t.Context(), fmt.Appendf(nil, "command %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range cap(m.kept) {
		if have, want := string(<-m.kept), fmt.Sprintf("command %d", i); have != want {
			t.Errorf("the machine has kept %q, want %q", have, want)
		}
	}
	// Lines are written by a goroutine of their own; all of them are when Close has returned.
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := lines.String(); !strings.Contains(text, "counts as one that does") || !strings.Contains(text, "BorrowsData of the state machine") {
		t.Errorf("the log says %s", text)
	}
}
