package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/transport/cert"
)

// Streams are what the process has besides its plan.
type Streams struct {
	In      io.Reader // see FromInput
	Out     io.Writer // a line of JSON for each Said
	Logger  *slog.Logger
	Version string // of the program
}

// Said is a line of the process's output.
type Said struct {
	// Event is "listening" (only with FromInput: the member waits for the addresses) or "ready" (a leader is
	// known in every group).
	Event  string `json:"event"`
	ID     uint64 `json:"id"`
	Listen string `json:"listen"` // for other members
	Loads  string `json:"loads"`
	Health string `json:"health"` // "": there is none
	PID    int    `json:"pid"`
}

// The events of Said.
const (
	Listening = "listening"
	Ready     = "ready"
)

const (
	memberPollInterval = 20 * time.Millisecond
	watchInterval      = 500 * time.Millisecond
	noticeAfter        = 10 * time.Second // between two lines about what the member waits for
)

// memberProcess is a member while it runs.
type memberProcess struct {
	MemberPlan
	Streams
	hello   Hello
	cluster atomic.Pointer[rig.Cluster] // nil until the member is open
	server  *ClientServer
	health  *health
}

var errInputEnded = errors.New("the standard input has ended")

// RunMember is the life of a member: it listens, waits for its peers, serves, and ends when ctx does, its
// input (FromInput) or its time (Plan.For). Then it hands over what it leads. The error is nil if it was
// ready by then, else ctx's cause.
func RunMember(ctx context.Context, p MemberPlan, s Streams) (err error) {
	if err := p.Validate(); err != nil {
		return err
	}
	own, err := p.credentials()
	if err != nil {
		return err
	}
	if err := probeDir(p.Dir); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &memberProcess{MemberPlan: p, Streams: s}
	m.hello = Hello{Protocol: Protocol, ID: p.ID, Life: rand.Uint64(), Components: p.Components, Version: s.Version, Environment: experiment.ReadMachine(p.Dir)}
	if p.Probe > 0 {
		if err := experiment.ProbeMachine(ctx, &m.hello.Environment, p.Dir, p.Probe); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.open(ctx, cancel, own); err != nil {
		if ctx.Err() != nil {
			return ended(ctx, false)
		}
		return err
	}
	return m.serve(ctx)
}

// ended returns how a member ends whose ctx has.
func ended(ctx context.Context, ready bool) error {
	if ready || errors.Is(context.Cause(ctx), errInputEnded) {
		return nil
	}
	return context.Cause(ctx)
}

func probeDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return lab.Cannot("Dir", "cannot use %s: %v", dir, lab.Cause(err))
	}
	if !info.IsDir() {
		return lab.Cannot("Dir", "%s is not a directory", dir)
	}
	return nil
}

// open makes everything listen, and opens the host.
func (m *memberProcess) open(ctx context.Context, cancel context.CancelCauseFunc, own *cert.Credentials) (err error) {
	if m.Health != "" {
		if m.health, err = serveHealth(m.Health, m.ready); err != nil {
			return lab.Cannot("Health", "%v", err)
		}
	}
	serving := ClientServing{Addr: m.Loads, Large: func(r Request) bool { return len(r.Value) > 0 && MemberKind(r.Value[0]) == KindForm }}
	if own != nil {
		serving.Wrap = AcceptTrusted(own)
	}
	opened := make(chan struct{})
	serving.Handle = func(ctx context.Context, r Request) (Status, string) {
		select {
		case <-opened:
			return m.handle(ctx, r)
		default:
			return early(r.Value)
		}
	}
	if m.server, err = ServeClientsAs(serving); err != nil {
		return lab.Cannot("Loads", "%v", err)
	}
	seat, err := rig.TakeSeat(ctx, m.setup(), rig.Seat{
		ID: m.ID, Listen: m.Listen, Credentials: own, Logger: m.Logger,
		Members: func(listening string) (addrs []string, number uint64, err error) {
			if err := m.meet(cancel, listening); err != nil {
				return nil, 0, err
			}
			if len(m.Members) == 1 { // its port may be another one in each life
				return []string{listening}, cluster(m.Members), nil
			}
			return m.hello.Members, cluster(m.hello.Members), nil
		},
	})
	if err != nil {
		return m.explain(err)
	}
	m.cluster.Store(seat)
	m.hello.Cluster = m.own().Host().Cluster()
	close(opened)
	return nil
}

// notOpen is the answer to a load that comes too early.
const notOpen = "the member is not open yet"

// early answers a request for which the member is not open yet. It has surely not taken a command.
func early(request []byte) (Status, string) {
	if len(request) > 0 && MemberKind(request[0]) == KindPropose {
		return NotTaken, ""
	}
	return Failed, notOpen
}

// explain says which directory and which port an error is about.
func (m *memberProcess) explain(err error) error {
	if strings.Contains(err.Error(), "belongs to cluster") {
		return lab.Cannot("Dir", "%s has the files of a member of another cluster: {Members} was another list when it was made; give that list again, or another directory", m.hostDir())
	}
	if listens := (*net.OpError)(nil); errors.As(err, &listens) && listens.Op == "listen" {
		return lab.Cannot("Listen", "%v", listens)
	}
	return fmt.Errorf("member %d, listening at %s, with its files in %s: %w", m.ID, m.Listen, m.hostDir(), err)
}

func (m *memberProcess) hostDir() string { return filepath.Join(m.Dir, fmt.Sprintf("host-%d", m.ID)) }

// meet finds out where all members are.
func (m *memberProcess) meet(cancel context.CancelCauseFunc, listening string) error {
	m.Listen, m.hello.Members = listening, m.Members
	if !m.fromInput() {
		return nil
	}
	if err := m.say(Listening); err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(m.In, maxInputBytes))
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no addresses of the members came on the standard input: %w", err)
	}
	m.hello.Members = nil // the plan's own must stay
	if err := json.Unmarshal(line, &m.hello.Members); err != nil {
		return fmt.Errorf("the addresses of the members on the standard input are no list in JSON: %w", err)
	}
	for _, addr := range m.hello.Members {
		if err := validateAddr("Members", addr); err != nil {
			return err
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, m.In)
		cancel(errInputEnded)
	}()
	return nil
}

const maxInputBytes = 64 << 10

func (m *memberProcess) say(event string) error {
	said := Said{Event: event, ID: m.ID, Listen: m.Listen, Loads: m.server.Addr(), PID: os.Getpid()}
	if m.health != nil {
		said.Health = m.health.addr()
	}
	return json.NewEncoder(m.Out).Encode(said)
}

// serve waits until the member is ready, and then until it must end or has failed.
func (m *memberProcess) serve(ctx context.Context) error {
	for notice := time.Now().Add(noticeAfter); m.ready() != nil; {
		if err := m.failure(); err != nil {
			return err
		}
		if err := lab.Sleep(ctx, memberPollInterval); err != nil {
			return ended(ctx, false)
		}
		if now := time.Now(); now.After(notice) {
			m.Logger.Info("the member waits", "for", m.ready())
			notice = now.Add(noticeAfter)
		}
	}
	if err := m.say(Ready); err != nil {
		return err
	}
	if m.For > 0 {
		timed, cancel := context.WithTimeout(ctx, m.For)
		defer cancel()
		ctx = timed
	}
	for {
		if err := m.failure(); err != nil {
			return err
		}
		if lab.Sleep(ctx, watchInterval) != nil {
			return ended(ctx, true)
		}
	}
}

// ready returns why the member is not ready, or nil.
func (m *memberProcess) ready() error {
	own := m.own()
	if own == nil {
		return errors.New(notOpen)
	}
	for g := range m.Groups {
		group := own.Group(g)
		if group == nil {
			return errors.New(notOpen)
		}
		if err := group.Err(); err != nil {
			return fmt.Errorf("group %d has stopped: %w", g+1, err)
		}
		if f := group.Founding(); !f.Founded {
			return fmt.Errorf("group %d is not founded; members that were not met yet: %v", g+1, f.Unmet)
		}
		if group.Status().Leader == 0 {
			return fmt.Errorf("group %d knows no leader", g+1)
		}
	}
	return nil
}

// failure returns why a group has stopped by itself.
func (m *memberProcess) failure() error {
	for g := range m.Groups {
		if group := m.own().Group(g); group != nil && group.Err() != nil {
			return fmt.Errorf("group %d has stopped: %w", g+1, group.Err())
		}
	}
	return nil
}
