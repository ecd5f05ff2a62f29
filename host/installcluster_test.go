package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs/crashfs"
)

// slots is a state machine whose state stays small while its log grows: each command replaces one of a few
// slots. The last 8 bytes of the state are how many commands it has applied.
type slots struct {
	slots    [40][]byte
	applied  uint64
	restored func()                            // called at the end of Restore; nil: nothing is
	refuses  error                             // of Snapshot
	fails    func(*statemachine.Command) error // what it says to a command instead of applying it; nil: nothing
}

func (s *slots) Apply(batch []statemachine.Command) error {
	for i := range batch {
		c := &batch[i]
		if s.fails != nil {
			if err := s.fails(c); err != nil {
				return err
			}
		}
		s.slots[int(c.Data[0])%len(s.slots)] = append([]byte(nil), c.Data...)
		s.applied++
		c.Result = binary.BigEndian.AppendUint64(nil, s.applied)
		if c.Caller != nil {
			c.Caller.(*answer).text = "applied"
		}
	}
	return nil
}

func (s *slots) Snapshot() (statemachine.Snapshot, error) { return slotsView(s.bytes()), s.refuses }

func (s *slots) bytes() (b []byte) {
	for _, slot := range s.slots {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(slot))), slot...)
	}
	return binary.BigEndian.AppendUint64(b, s.applied)
}

func (s *slots) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	restored := slots{}
	for i := range restored.slots {
		n := binary.BigEndian.Uint32(b)
		restored.slots[i], b = b[4:4+n], b[4+n:]
	}
	s.slots, s.applied = restored.slots, binary.BigEndian.Uint64(b)
	if s.restored != nil {
		s.restored()
	}
	return nil
}

type slotsView []byte

func (v slotsView) WriteTo(_ context.Context, w io.Writer) error { _, err := w.Write(v); return err }
func (v slotsView) Close() error                                 { return nil }

// parcel is something on its way between two hosts.
type parcel struct {
	from, to uint64
	kind     transport.Kind
	body     []byte
	batch    []transport.Envelope
}

// installCluster is hosts in environments that the test moves, with a network that keeps the order of what it
// does not lose.
type installCluster struct {
	t       *testing.T
	rng     *rand.Rand
	hosts   []*installHost
	wire    []parcel
	now     time.Duration
	cut     func(from, to uint64) bool
	change  func(*parcel) // what a lying network or host does
	met     map[[2]*transport.Receiver]bool
	calls   int
	blocks  map[string]int // how often each block arrived at the third host
	change1 func(*Config)
	objects *statemachine.ObjectOptions
}

// installHost is one host, with a disk that stays. It is the transport of its process.
type installHost struct {
	process  *Host
	all      *installCluster
	id       uint64
	disk     *crashfs.FS
	manual   *manualEnv
	receiver *transport.Receiver
	group    *Group
	machine  *slots
	events   []event.Event
}

func (h *installHost) Start(r transport.Receiver) { h.receiver = &r }
func (h *installHost) Close() error               { h.receiver = nil; return nil }

func (h *installHost) Send(to uint64, batch []transport.Envelope) bool {
	h.all.wire = append(h.all.wire, parcel{from: h.id, to: to, batch: append([]transport.Envelope(nil), batch...)})
	return true
}

func (h *installHost) SendBytes(to uint64, kind transport.Kind, body []byte) bool {
	h.all.wire = append(h.all.wire, parcel{from: h.id, to: to, kind: kind, body: append([]byte(nil), body...)})
	return true
}

// seeded makes the hosts draw different election timeouts.
type seeded struct {
	*manualEnv
	rng *rand.Rand
}

func (s seeded) Uint64() uint64 { return s.rng.Uint64() }

func newInstallCluster(t *testing.T, seed uint64) *installCluster {
	c := &installCluster{t: t, rng: rand.New(rand.NewPCG(seed, 99)), met: map[[2]*transport.Receiver]bool{}, blocks: map[string]int{}}
	for id := range uint64(3) {
		c.hosts = append(c.hosts, &installHost{all: c, id: id + 1, disk: crashfs.New()})
	}
	return c
}

func (c *installCluster) start() *installCluster {
	for _, h := range c.hosts {
		h.start()
	}
	for i := 0; c.leader() == nil || !c.leader().group.takesCommandsNow(); i++ {
		if c.tick(); i > 5000 {
			c.t.Fatal("no leader, or the group is not founded")
		}
	}
	return c
}

// takesCommandsNow reports whether the group is founded, as far as its last turn knew.
func (g *Group) takesCommandsNow() bool { return g.members.founding.IsFounded() }

func (h *installHost) start() {
	h.all.t.Helper()
	if err := h.tryStart(); err != nil {
		h.all.t.Fatalf("host %d does not start: %v", h.id, err)
	}
}

func (h *installHost) tryStart() error {
	h.manual = &manualEnv{now: h.all.now}
	h.machine = &slots{}
	config := Config{ID: h.id, Dir: "data", Members: map[uint64]string{1: "a", 2: "b", 3: "c"}, SegmentBytes: 1 << 20, MemoryBytes: 64 << 20}
	if h.all.change1 != nil {
		h.all.change1(&config)
	}
	rng := rand.New(rand.NewPCG(h.all.rng.Uint64(), h.id))
	process, err := Open(context.Background(), config, WithEnv(env.Env{Clock: h.manual, Rand: seeded{h.manual, rng}, Scheduler: h.manual}), WithFS(h.disk.Mount()), WithTransport(h), WithLogger(quiet),
		WithEvents(func(e event.Event) { h.events = append(h.events, e) }))
	if err != nil {
		return err
	}
	h.process = process
	h.group, err = process.OpenGroup(context.Background(), GroupConfig{ID: theGroup, Snapshots: SnapshotPolicy{LogBytes: 1 << 20}}, Commands(h.machine, statemachine.CommandOptions{Objects: h.all.objects}))
	if err != nil {
		return errors.Join(err, process.Close(context.Background()))
	}
	return nil
}

// crash ends the process of a host. Nothing that it does afterwards counts.
func (h *installHost) crash(loss crashfs.Loss) {
	h.receiver, h.process = nil, nil
	h.disk.Crash(loss, h.all.rng.Uint64)
	h.disk.SetHook(nil)
}

// leader returns the host that leads and reaches a quorum, as far as can be seen.
func (c *installCluster) leader() (leads *installHost) {
	for _, h := range c.hosts {
		if h.process != nil && h.group.Status().Role == event.RoleLeader && (leads == nil || h.group.Status().Term > leads.group.Status().Term) {
			leads = h
		}
	}
	return leads
}

// tick passes one tick on all hosts, and delivers what is on its way then.
func (c *installCluster) tick() {
	for _, h := range c.hosts {
		if h.process != nil {
			h.manual.tick()
		}
	}
	for _, h := range c.hosts {
		if h.process != nil {
			c.now = max(c.now, h.manual.now)
		}
	}
	for n := 0; len(c.wire) > 0 && n < 2000; n++ {
		p := c.wire[0]
		c.wire = c.wire[1:]
		c.deliver(&p)
	}
}

func (c *installCluster) deliver(p *parcel) {
	from, to := c.hosts[p.from-1], c.hosts[p.to-1]
	if from.process == nil || to.process == nil || from.receiver == nil || to.receiver == nil || c.cut != nil && c.cut(p.from, p.to) {
		return
	}
	if pair := [2]*transport.Receiver{from.receiver, to.receiver}; !c.met[pair] {
		for _, ends := range [2][2]*installHost{{from, to}, {to, from}} {
			self := (*ends[0].receiver).Introduce()
			self.ID = ends[0].id
			if (*ends[1].receiver).Admit(self, "here") != nil {
				return
			}
		}
		c.met[pair] = true
	}
	if c.change != nil {
		c.change(p)
	}
	if p.batch != nil {
		(*to.receiver).Receive(p.from, p.batch)
	} else if p.body != nil {
		if p.to == 3 && p.kind == transport.Bulk && p.body[0] == control.SnapshotBlock {
			if b, err := bulk.DecodeBlock(p.body); err == nil {
				c.blocks[fmt.Sprintf("%x %v", b.Hash[:4], b.At)]++
			}
		}
		(*to.receiver).Deliver(p.from, p.kind, p.body)
	}
	if to.process != nil {
		to.manual.runIdle()
	}
}

// call hands commands in at the leader, if there is one.
func (c *installCluster) call(n int) {
	for range n {
		l := c.leader()
		if l == nil {
			return
		}
		data := make([]byte, CallRoom+32<<10)
		for i := CallRoom; i < len(data); i += 512 {
			binary.BigEndian.PutUint64(data[i:], c.rng.Uint64())
		}
		data[CallRoom] = byte(c.calls)
		c.calls++
		if err := l.group.Call(&Call{Owner: &answer{}, Data: data}); err == nil {
			l.manual.runIdle()
		}
	}
}

// load hands in commands and lets time pass, until f says that it is enough.
func (c *installCluster) load(what string, perTick int, enough func() bool) {
	c.t.Helper()
	for i := 0; !enough(); i++ {
		if i > 20_000 {
			c.t.Fatalf("%s: no end: %s", what, c.describe())
		}
		c.call(perTick)
		c.tick()
	}
}

func (c *installCluster) describe() (text string) {
	for _, h := range c.hosts {
		if h.process == nil {
			text += fmt.Sprintf("host %d is down; ", h.id)
			continue
		}
		s := h.group.Status()
		text += fmt.Sprintf("host %d: %v of term %d, committed %d, applied %d, log from %d to %d, err %v", h.id, s.Role, s.Term, s.Committed, h.group.machine.apply.position().Index, h.group.writes.storage.log.FirstIndex(), s.LastIndex, h.group.Err())
		for _, r := range h.process.bulk.transfers.In() {
			text += ", " + r.String()
		}
		for _, s := range h.process.bulk.transfers.Out() {
			text += ", " + s.String()
		}
		text += "; "
	}
	return text
}

// equal reports whether all hosts have applied the same, everything that is committed.
func (c *installCluster) equal() bool {
	want := c.leader()
	if want == nil {
		return false
	}
	for _, h := range c.hosts {
		if h.process == nil || h.group.Err() != nil || h.group.Status().Committed != want.group.Status().LastIndex || h.group.machine.apply.position() != want.group.machine.apply.position() {
			return false
		}
	}
	for _, h := range c.hosts {
		a, b := h.group.machine.apply.machine.(*commandGroup), want.group.machine.apply.machine.(*commandGroup)
		if string(h.machine.bytes()) != string(want.machine.bytes()) || string(a.table.AppendTo(nil)) != string(b.table.AppendTo(nil)) || a.sums.State().Commands != b.sums.State().Commands {
			c.t.Fatalf("host %d has applied the same entries as host %d, and has another state: %d and %d commands", h.id, want.id, h.machine.applied, want.machine.applied)
		}
	}
	return true
}

// isolate cuts a host off, until heal.
func (c *installCluster) isolate(id uint64) {
	c.cut = func(from, to uint64) bool { return from == id || to == id }
}

func (c *installCluster) heal() { c.cut = nil }

// isBeyond reports whether a host needs a snapshot: the log of the leader begins behind the end of its own.
func (c *installCluster) isBeyond(id uint64) bool {
	l, h := c.leader(), c.hosts[id-1]
	return l != nil && l != h && l.group.writes.storage.log.FirstIndex() > h.group.Status().LastIndex+1
}

func count[E event.Event](h *installHost) (n int) {
	for _, e := range h.events {
		if _, ok := e.(E); ok {
			n++
		}
	}
	return n
}
