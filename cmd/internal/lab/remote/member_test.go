package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

func plan(t *testing.T) MemberPlan {
	return MemberPlan{
		Components: Components{Log: "group", Engine: "memory", Transport: "tcp", Pipeline: "async", EarlyAck: true, Groups: 1},
		ID:         1, Members: []string{"127.0.0.1:0"}, Dir: t.TempDir(), Loads: "127.0.0.1:0",
	}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		change func(p *MemberPlan)
		want   string
	}{
		{func(p *MemberPlan) { p.Transport = "loopback" }, "Transport: loopback is memory within one process"},
		{func(p *MemberPlan) { p.Log = "etcd" }, "Log: the log etcd is in another program"},
		{func(p *MemberPlan) { p.Bandwidth = 1 }, "Bandwidth: 1 is neither"},
		{func(p *MemberPlan) { p.Log = "paper" }, "Log: wal: durability mode"},
		{func(p *MemberPlan) { p.Pipeline = "fast" }, `Pipeline: unknown pipeline "fast"`},
		{func(p *MemberPlan) { p.Pipeline, p.Groups = "basic", 2 }, "Pipeline: basic is for comparison"},
		{func(p *MemberPlan) { p.Pipeline, p.Leases = "basic", true }, "Leases: they need the append lane"},
		{func(p *MemberPlan) { p.Pipeline, p.SnapshotMiB = "clamped", 1 }, "SnapshotMiB: the pipeline clamped"},
		{func(p *MemberPlan) { p.SnapshotMiB = -1 }, "SnapshotMiB: -1 is not between"},
		{func(p *MemberPlan) { p.Members = nil }, "Members: 0 is not between 1 and 9"},
		{func(p *MemberPlan) { p.ID = 2 }, "ID: 2, and {Members} names 1"},
		{func(p *MemberPlan) { p.Members = []string{"127.0.0.1"} }, `Members: "127.0.0.1" is not HOST:PORT`},
		{func(p *MemberPlan) { p.Members = []string{"127.0.0.1:1", "127.0.0.1:1"} }, "Members: 127.0.0.1:1 is there twice"},
		{func(p *MemberPlan) { p.Members = []string{"-", "127.0.0.1:1"} }, "Members: give all addresses, or a - for each"},
		{func(p *MemberPlan) { p.Loads = "" }, `Loads: "" is not HOST:PORT`},
		{func(p *MemberPlan) { p.Loads = ":7001" }, "Insecure: :7001 can be reached from other machines"},
		{func(p *MemberPlan) { p.Members, p.ID = []string{"10.0.0.1:1", "127.0.0.1:1"}, 2 }, "Insecure: 10.0.0.1:1 can be reached"},
		{func(p *MemberPlan) { p.Health = "x" }, `Health: "x" is not HOST:PORT`},
		{func(p *MemberPlan) { p.Certificates = "pki" }, "Certificates: {Transport} tcp and a directory"},
		{func(p *MemberPlan) { p.Transport = "tcp+tls" }, "Certificates: {Transport} tcp+tls and a directory"},
		{func(p *MemberPlan) { p.Dir = "" }, "Dir: give the directory"},
		{func(p *MemberPlan) { p.Probe = time.Hour }, "Probe: 1h0m0s is not between"},
		{func(p *MemberPlan) { p.For = -1 }, "For: -1ns is not between"},
	} {
		p := plan(t)
		tc.change(&p)
		if err := p.Validate(); err == nil || !strings.HasPrefix(err.Error(), tc.want) || !errors.Is(err, lab.ErrInvalid) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	p := plan(t)
	p.Loads, p.Insecure = ":7001", true
	if err := p.Validate(); err != nil || p.Listen != "127.0.0.1:0" {
		t.Errorf("%q, %v", p.Listen, err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := plan(t)
	busy.Listen = taken.Addr().String()
	if err := RunMember(t.Context(), busy, Streams{}); !errors.Is(err, lab.ErrCannot) || !strings.HasPrefix(err.Error(), "Listen: listen tcp ") {
		t.Errorf("an address that is in use: %v", err)
	}
	p.Transport, p.Certificates = "tcp+tls", t.TempDir()
	if err := RunMember(t.Context(), p, Streams{}); !errors.Is(err, lab.ErrCannot) || !strings.HasPrefix(err.Error(), "Certificates: ") {
		t.Errorf("without certificates: %v", err)
	}
}

func TestIDs(t *testing.T) {
	for name, want := range map[string]uint64{"lab-0": 1, "millrace-lab-2": 3, "millrace-lab-2.svc.local": 3, "laptop": 0, "lab-": 0, "lab-x2": 0, "lab-12345": 0} {
		if have := idOf(name); have != want {
			t.Errorf("%s: member %d, want %d", name, have, want)
		}
	}
}

func TestDifferences(t *testing.T) {
	a := plan(t).Components
	b := a
	if d := a.Differences(b); d != nil {
		t.Errorf("%q", d)
	}
	// Each component counts.
	b = Components{"sync", "x", "tcp+tls", "basic", false, 2, 1, 1, 1, 1, true, 1}
	if d := a.Differences(b); len(d) != 12 {
		t.Errorf("%d differences: %q", len(d), d)
	}
}

// A setup means the components that it was made of, and one that says more is refused.
func TestOf(t *testing.T) {
	want := Components{
		Log: "group-delay(3ms,65536,100)", Engine: "memory", Transport: "tcp+tls", Pipeline: "parallel", EarlyAck: false, Groups: 1, Depth: 4, FsyncDelay: 2, Bandwidth: 5e6, NetDelay: 3,
	}
	s := want.Experiment(3).Points(rig.Foreign{})[0].Setup
	if have, err := ComponentsOf(s); have != want || err != nil {
		t.Errorf("%+v, %v", have, err)
	}
	s.StateBytes = 7
	if _, err := ComponentsOf(s); !errors.Is(err, lab.ErrInvalid) || !strings.Contains(err.Error(), "cannot be given StateBytes, which is 7") {
		t.Errorf("%v", err)
	}
}

func TestRequests(t *testing.T) {
	if _, _, _, err := memberParseRequest([]byte("h"), 1); err == nil {
		t.Error("a request of one byte is accepted")
	}
	if _, _, _, err := memberParseRequest(MemberRequest(KindForm, 2), 2); err == nil {
		t.Error("a request for the group after the last is accepted")
	}
	k, g, rest, err := memberParseRequest(MemberRequest(KindRead, 1, 'x'), 2)
	if k != KindRead || g != 1 || string(rest) != "x" || err != nil {
		t.Errorf("%q, %d, %q, %v", k, g, rest, err)
	}
	if _, _, err := FormPiece([]byte("short")); err == nil {
		t.Error("a piece without its length is accepted")
	}
}

// get returns status and text of a health check.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// A member whose peer does not come is alive and not ready; when it is told to end before it was ready, that
// is an interrupt. One that was ready ends well. Its files belong to its cluster.
func TestLife(t *testing.T) {
	interrupt := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := plan(t)
	p.Members, p.Health = []string{FromInput, FromInput}, "127.0.0.1:0"
	in, input := io.Pipe()
	output, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- RunMember(ctx, p, Streams{In: in, Out: out, Logger: slog.New(slog.DiscardHandler)}) }()
	var said Said
	if err := json.NewDecoder(output).Decode(&said); err != nil {
		t.Fatal(err)
	}
	if status, text := get(t, "http://"+said.Health+"/readyz"); status != http.StatusServiceUnavailable || text != notOpen+"\n" {
		t.Errorf("%d %s", status, text)
	}
	if _, err := fmt.Fprintf(input, "[%q, %q]\n", said.Listen, "127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for {
		status, text := get(t, "http://"+said.Health+"/readyz")
		if strings.Contains(text, "group 1 is not founded; members that were not met yet: [2]") && status == http.StatusServiceUnavailable {
			break
		}
	}
	if status, _ := get(t, "http://"+said.Health+"/livez"); status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	cancel(interrupt)
	if err := <-ended; !errors.Is(err, interrupt) {
		t.Errorf("%v", err)
	}
	input.Close() // ends the goroutine that reads it

	p = plan(t)
	p.For = time.Millisecond
	for range 2 { // the second time on the files of the first
		var text strings.Builder
		if err := RunMember(t.Context(), p, Streams{Out: &text, Logger: slog.New(slog.DiscardHandler)}); err != nil || !strings.HasPrefix(text.String(), `{"event":"ready","id":1,`) {
			t.Errorf("%v, %s", err, text.String())
		}
	}
	p.Members = []string{"127.0.0.1:0", "127.0.0.1:1"}
	if err := RunMember(t.Context(), p, Streams{Out: io.Discard, Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, lab.ErrCannot) || !strings.Contains(err.Error(), "{Members} was another list") {
		t.Errorf("%v", err)
	}
}
