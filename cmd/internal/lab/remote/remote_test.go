package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/labtest"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// TestMain answers for the members that the tests start as processes: this program, with a plan in JSON.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == memberVerb {
		os.Exit(runMember(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == ownerVerb {
		os.Exit(runOwner(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

const memberVerb = "member-of-a-test"

func runMember(text string) (status int) {
	var p remote.MemberPlan
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = remote.RunMember(context.Background(), p, remote.Streams{In: os.Stdin, Out: os.Stdout, Logger: slog.New(slog.DiscardHandler)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

var components = remote.Components{Log: "group", Engine: "memory", Transport: "tcp", Pipeline: "async", EarlyAck: true, Groups: 1}

// cluster is one of members in this process, each with its own ports.
type cluster struct {
	t       *testing.T
	dir     string
	plan    remote.MemberPlan
	members []*running
	addrs   []string // for each other
	loads   []string
}

// running is one life of a member.
type running struct {
	cancel context.CancelFunc
	ended  chan error
}

// start starts n members. change changes what one of them is told.
func start(t *testing.T, n int, c remote.Components, change func(id int, p *remote.MemberPlan)) *cluster {
	t.Helper()
	of := &cluster{t: t, dir: t.TempDir(), members: make([]*running, n), loads: make([]string, n)}
	of.plan = remote.MemberPlan{Components: c, Dir: of.dir, Loads: "127.0.0.1:0"}
	if c.Transport == string(rig.TLS) {
		of.plan.Certificates = filepath.Join(of.dir, "pki")
		if _, err := remote.MakeCertificates(of.plan.Certificates, "test", n, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		of.plan.Members = append(of.plan.Members, remote.FromInput)
	}
	var inputs []io.WriteCloser
	var outputs []*bufio.Reader
	for i := range n {
		p := of.plan
		p.ID = uint64(i + 1)
		if change != nil {
			change(i+1, &p)
		}
		in, out := of.run(i, p)
		inputs, outputs = append(inputs, in), append(outputs, out)
		said := of.mustSay(out, remote.Listening)
		of.addrs, of.loads[i] = append(of.addrs, said.Listen), said.Loads
	}
	line, err := json.Marshal(of.addrs)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range inputs {
		if _, err := in.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	for _, out := range outputs {
		of.mustSay(out, remote.Ready)
	}
	t.Cleanup(func() {
		for i := range of.members {
			of.stop(i)
		}
	})
	return of
}

// run begins a life of a member. Its output is read only as far as the test wants.
func (c *cluster) run(i int, p remote.MemberPlan) (io.WriteCloser, *bufio.Reader) {
	ctx, cancel := context.WithCancel(context.Background())
	in, input := io.Pipe()
	output, out := io.Pipe()
	r := &running{ended: make(chan error, 1)}
	r.cancel = func() {
		cancel()
		input.Close()
		output.Close()
	}
	c.members[i] = r
	go func() {
		err := remote.RunMember(ctx, p, remote.Streams{In: in, Out: out, Logger: slog.New(slog.DiscardHandler), Version: "test"})
		out.CloseWithError(err)
		r.ended <- err
	}()
	return input, bufio.NewReader(output)
}

func said(out *bufio.Reader, event string) (s remote.Said, err error) {
	line, err := out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err == nil && s.Event != event {
		err = fmt.Errorf("a member says that it is %s, want %s", s.Event, event)
	}
	return s, err
}

func (c *cluster) mustSay(out *bufio.Reader, event string) remote.Said {
	c.t.Helper()
	s, err := said(out, event)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// stop ends a life, which must end well.
func (c *cluster) stop(i int) {
	r := c.members[i]
	if r == nil {
		return
	}
	c.members[i] = nil
	r.cancel()
	if err := <-r.ended; err != nil {
		c.t.Errorf("member %d ended with %v", i+1, err)
	}
}

// again begins another life of a member, at the same ports.
func (c *cluster) again(i int) error {
	p := c.plan
	p.ID, p.Members, p.Loads = uint64(i+1), c.addrs, c.loads[i]
	_, out := c.run(i, p)
	_, err := said(out, remote.Ready)
	return err
}

func (c *cluster) options() remote.Options {
	o := remote.Options{Members: c.loads, Wait: 20 * time.Second, Absence: 300 * time.Millisecond}
	if c.plan.Certificates != "" {
		own, err := remote.LoadCredentials(c.plan.Certificates)
		if err != nil {
			c.t.Fatal(err)
		}
		o.Credentials = own
	}
	return o
}

func (c *cluster) connect() *remote.Cluster {
	c.t.Helper()
	of, err := remote.Connect(c.t.Context(), c.options())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(of.Close)
	return of
}

func begin(t *testing.T, c *remote.Cluster) *remote.Run {
	t.Helper()
	r, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type silent struct{}

func (silent) Phase(string)          {}
func (silent) Live(func() load.Live) {}

// window loads a target for a moment, and as long as beside takes: longer on a slow machine, until an
// operation has ended. What beside does is done once.
func window(t *testing.T, target load.Target, ledger *load.Ledger, beside func(context.Context) error) load.Outcome {
	t.Helper()
	for length := range labtest.Lengths(100 * time.Millisecond) {
		o, err := load.Window{
			Source: load.NewSource(64, 1), Length: length, Generator: load.Closed{Clients: 6}, Observer: silent{}, Ledger: ledger,
			Beside: beside, Timeline: true,
		}.Run(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		completed, failed := o.Timeline.Counts(0, o.Timeline.End())
		if completed > 0 {
			return o
		}
		t.Logf("no operation ended well in %v, %d failed: %v", length, failed, o.Errors)
		beside = nil
	}
	t.Fatal("no operation ended well")
	return load.Outcome{}
}

// Loads write and read over TLS, in groups, one after the other on the same members, and count what the
// members' processes have used.
func TestLoads(t *testing.T) {
	of := components
	of.Transport, of.Groups, of.Leases, of.SnapshotMiB, of.FsyncDelay, of.NetDelay = string(rig.TLS), 2, true, 1, time.Microsecond, time.Microsecond
	c := start(t, 3, of, nil).connect()
	if h := c.Hello(); h.ID != 1 || h.Components != of || len(h.Members) != 3 || h.Cluster == 0 {
		t.Errorf("%+v", h)
	}
	if err := c.MeasureRoundTrips(t.Context(), time.Millisecond); err != nil {
		t.Error(err)
	}
	for _, m := range c.Machines() {
		if m.Network == nil || m.Network.RTTP50Us <= 0 || m.Cores == 0 {
			t.Errorf("%+v", m)
		}
	}
	for range 2 {
		r := begin(t, c)
		o := window(t, r, r.Ledger(), nil)
		if u := o.Used; o.Hosts == nil || o.Hosts.CPU <= 0 || u.SentBytes == 0 || u.AppliedEntries < o.Completed {
			t.Errorf("%+v, %+v of %d operations", o.Hosts, u, o.Completed)
		}
		for _, by := range rig.AllReadings {
			reads, ledger, err := r.Reads(by)
			if err != nil {
				t.Fatal(err)
			}
			window(t, reads, ledger, nil)
		}
		if remarks := r.Remarks(); remarks != nil {
			t.Errorf("%+v", remarks)
		}
		for _, u := range r.Uses() {
			if !u.OK || u.PeakBytes == 0 || u.Process.CPU == 0 {
				t.Errorf("%+v", u)
			}
		}
	}
}

// A write that waits for the state machine is acknowledged by it.
func TestLateAcknowledgement(t *testing.T) {
	of := components
	of.EarlyAck, of.Pipeline = false, "parallel"
	r := begin(t, start(t, 1, of, nil).connect())
	window(t, r, r.Ledger(), nil)
}

// A load goes on while a follower is gone, or the leader stops; what was acknowledged is on all members that
// answer, and the remarks name one that does not.
func TestMembersGo(t *testing.T) {
	c := start(t, 3, components, nil)
	of := c.connect()
	t.Run("a follower is gone for a while", func(t *testing.T) {
		r := begin(t, of)
		window(t, r, r.Ledger(), func(context.Context) error {
			c.stop(2)
			r.Counters()
			return c.again(2)
		})
		if remarks := text(r.Remarks()); !strings.Contains(remarks, "member 3 did not answer") || strings.Contains(remarks, "verified") {
			t.Errorf("%s", remarks)
		}
	})
	t.Run("the leader stops", func(t *testing.T) {
		r := begin(t, of)
		window(t, r, r.Ledger(), func(ctx context.Context) error {
			c.stop(0)
			client, page := r.Ledger().Open()
			for {
				seq := page.Send()
				err := r.Propose(ctx, load.NewSource(64, 2).Value(load.ValueID{Client: client, Seq: seq}))
				if err == nil {
					page.Acknowledge(seq)
					break
				}
				if !errors.Is(err, remote.ErrIndeterminate) { // the connection to a host that goes
					return err
				}
			}
			return c.again(0)
		})
	})
	t.Run("a follower stays away", func(t *testing.T) {
		r := begin(t, of)
		window(t, r, r.Ledger(), func(context.Context) error {
			c.stop(1)
			return nil
		})
		if remarks := text(r.Remarks()); !strings.Contains(remarks, "not every member was verified: member 2 at ") {
			t.Errorf("%s", remarks)
		}
	})
	t.Run("the load begins without member 1", func(t *testing.T) {
		if err := c.again(1); err != nil {
			t.Fatal(err)
		}
		c.stop(0)
		r := begin(t, of)
		window(t, r, r.Ledger(), nil)
		if remarks := text(r.Remarks()); !strings.Contains(remarks, "member 1 does not lead 1 of 1 groups") || !strings.Contains(remarks, "the load began without a member: member 1 at ") {
			t.Errorf("%s", remarks)
		}
	})
}

func text(remarks []archive.Warning) string { return fmt.Sprint(remarks) }

// What clients believe to be acknowledged and no member has is found, as is a load beside another one.
func TestVerifyFinds(t *testing.T) {
	of := start(t, 1, components, nil).connect()
	r := begin(t, of)
	window(t, r, r.Ledger(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, page := r.Ledger().Open()
	page.Acknowledge(page.Send())
	if err := r.Verify(ctx, r.Ledger()); !errors.Is(err, lab.ErrMismatch) {
		t.Errorf("a write that was never sent: %v", err)
	}

	r = begin(t, of)
	client, page := r.Ledger().Open()
	value := load.NewSource(64, 1).Value(load.ValueID{Client: client, Seq: page.Send()})
	for range 2 {
		if err := r.Propose(t.Context(), append([]byte{}, value...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Verify(t.Context(), r.Ledger()); !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "applied twice") {
		t.Errorf("a write that was sent twice: %v", err)
	}

	r = begin(t, of)
	propose := func(acked bool) {
		t.Helper()
		client, page := r.Ledger().Open()
		seq := page.Send()
		if err := r.Propose(t.Context(), load.NewSource(64, 1).Value(load.ValueID{Client: client, Seq: seq})); err != nil {
			t.Fatal(err)
		}
		if acked {
			page.Acknowledge(seq)
		}
	}
	propose(true)
	reads, _, err := r.Reads(rig.ByIndex)
	if err != nil {
		t.Fatal(err)
	}
	begin(t, of)
	for what, err := range map[string]error{
		"writes": r.Verify(t.Context(), r.Ledger()), "reads": reads.Verify(t.Context(), nil), "a read": reads.Propose(t.Context(), load.NewSource(64, 1).Value(load.ValueID{})),
	} {
		if err == nil || !strings.Contains(err.Error(), "another load") || errors.Is(err, lab.ErrMismatch) {
			t.Errorf("%s beside another load: %v", what, err)
		}
	}

	// A write that was not acknowledged fills the count for one that was, and may be on its way.
	r = begin(t, of)
	propose(false)
	_, page = r.Ledger().Open()
	page.Acknowledge(page.Send())
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.Verify(ctx, r.Ledger()); ctx.Err() == nil || !errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "write 0 of client 1 was acknowledged and is not there") {
		t.Errorf("a write that does not come: %v, and the time is over: %v", err, ctx.Err())
	}
}

// Of members that do not answer it is not known what they hold: that is no mismatch.
func TestVerifyWithoutAMajority(t *testing.T) {
	c := start(t, 2, components, nil)
	r := begin(t, c.connect())
	c.stop(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := r.Verify(ctx, r.Ledger()); err == nil || errors.Is(err, lab.ErrMismatch) || !strings.Contains(err.Error(), "a majority does not answer: start them again") {
		t.Errorf("%v", err)
	}
}

// Members that do not belong together, cannot be reached or cannot prove who they are, are refused with a
// sentence.
func TestRefusals(t *testing.T) {
	secured := components
	secured.Transport = string(rig.TLS)
	plain, tls := start(t, 2, components, nil), start(t, 1, secured, nil)
	other := start(t, 1, components, nil)
	differs := start(t, 2, components, func(id int, p *remote.MemberPlan) {
		if id == 2 {
			p.EarlyAck, p.SnapshotMiB = false, 7
		}
	})
	foreign := filepath.Join(t.TempDir(), "pki")
	if _, err := remote.MakeCertificates(foreign, "another lab", 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	strange, err := remote.LoadCredentials(foreign)
	if err != nil {
		t.Fatal(err)
	}
	half := *strange // trusts both, and is trusted by the others only
	half.Roots = append(half.Roots, tls.options().Credentials.Roots...)
	for _, tc := range []struct {
		name string
		o    remote.Options
		want string
	}{
		{"none there", remote.Options{Members: []string{"127.0.0.1:1"}}, "the member at 127.0.0.1:1 cannot be reached, for 300ms: dial tcp"},
		{"some", remote.Options{Members: plain.loads[:1]}, "has 2 members, and 1 addresses were given: give all"},
		{"one twice", remote.Options{Members: []string{plain.loads[0], plain.loads[0]}}, "are both member 1: give the address of each member once"},
		{"of two clusters", remote.Options{Members: []string{other.loads[0], plain.loads[1]}}, "are of different clusters: the one has the members " + other.addrs[0]},
		{"other flags", remote.Options{Members: differs.loads}, "were started with different flags: early acknowledgement is true and false; the MiB of log between snapshots is 0 and 7"},
		{"the port for members", remote.Options{Members: plain.addrs}, "loads are not served at this address"},
		{"plain and TLS", remote.Options{Members: tls.loads}, "it speaks TLS, or loads"},
		{"TLS and plain", remote.Options{Members: plain.loads, Credentials: strange}, "cannot be reached, for 300ms"},
		{"another CA", remote.Options{Members: tls.loads, Credentials: strange}, `leads to no CA that this host trusts: "CN=another lab"`},
		{"refused by the member", remote.Options{Members: tls.loads, Credentials: &half}, "has refused the connection: the certificate is refused: \"CN=Millrace lab load\""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Wait = 300 * time.Millisecond
			_, err := remote.Connect(t.Context(), tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
			if !errors.Is(err, lab.ErrCannot) && !errors.Is(err, lab.ErrInvalid) {
				t.Errorf("%v is no refusal", err)
			}
		})
	}
	said := ""
	waits := remote.Options{Members: []string{"127.0.0.1:1"}, Wait: 300 * time.Millisecond, Interval: time.Millisecond, Waiting: func(why error) { said = why.Error() }}
	if _, err := remote.Connect(t.Context(), waits); err == nil || !strings.HasPrefix(said, "the member at 127.0.0.1:1: dial tcp") {
		t.Errorf("%v, and the user was told %q", err, said)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := remote.Connect(ctx, remote.Options{Members: []string{"127.0.0.1:1"}, Wait: time.Hour}); err == nil || err.Error() != "enough" {
		t.Errorf("interrupted: %v", err)
	}
}
