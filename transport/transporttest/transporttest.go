// Package transporttest is a kit that tests a transport against the contract of package transport. It is for
// those who bring their own; transport/tcp and transport/loopback pass it, and its own test shows that each
// of two dozen broken transports is found.
//
// A test calls Run with a function that makes a network, and the network makes hosts:
// transport/tcp/conformance_test.go is one to copy.
//
// The kit waits for what must happen, up to 20 seconds, and judges no time. What a transport may lose, the
// kit sends again. It holds a receiver fast and fills queues, so it takes some hundred megabytes of memory.
package transporttest

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Host is one end of a transport: what a host of Millrace uses (host.Transport), and an address book.
type Host interface {
	Start(transport.Receiver)
	Send(to uint64, batch []transport.Envelope) bool
	SendBytes(to uint64, kind transport.Kind, body []byte) bool
	Close() error

	// Addr returns the address at which SetPeer of another host finds this one.
	Addr() string
	// SetPeer adds a peer to the address book or changes its address. Nothing is sent to a host that is not in
	// the book, and nothing is accepted from it.
	SetPeer(id uint64, addr string)
	RemovePeer(id uint64)
}

// A Host with this method has its counts tested, too.
type counted interface{ Stats() transport.Stats }

// Network makes hosts of one network. An empty addr means any; the address of a closed host with the same id
// means that this host restarts. Its queues must have the default bounds of package transport.
type Network func(id uint64, addr string) Host

// Run tests the transport whose networks network makes: one for each subtest.
func Run(t *testing.T, network func(t testing.TB) Network) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(&kit{TB: t, network: network(t), maxWait: maxWait}) })
	}
}

// maxWait is how long the kit waits for something that must happen.
const maxWait = 20 * time.Second

// kit is one case at work.
type kit struct {
	testing.TB
	network Network
	maxWait time.Duration
}

var cases = []struct {
	name string
	test func(*kit)
}{
	{"Order", order},
	{"ManyGroups", manyGroups},
	{"Content", content},
	{"Bodies", bodies},
	{"BodiesAreCopied", bodiesAreCopied},
	{"LatestPulse", latestPulse},
	{"PulsesKeepMoving", pulsesKeepMoving},
	{"ClassesDoNotWait", classesDoNotWait},
	{"SendersDoNotWait", sendersDoNotWait},
	{"Bounds", bounds},
	{"LargerThanTheQueue", largerThanTheQueue},
	{"TooLarge", tooLarge},
	{"Strangers", strangers},
	{"Restart", restart},
	{"RemovePeer", removePeer},
	{"Admission", admission},
	{"Proof", proof},
	{"Keeper", keeper},
	{"CloseWhileSending", closeWhileSending},
	{"CloseUnstarted", closeUnstarted},
}

// host makes a host that is closed at the end of the test.
func (k *kit) host(id uint64, addr string) Host {
	h := k.network(id, addr)
	k.Cleanup(func() { h.Close() })
	return h
}

// cluster makes and starts hosts 1 … n that know each other.
func (k *kit) cluster(size int) ([]Host, []*inbox) {
	hosts, inboxes := make([]Host, size), make([]*inbox, size)
	for i := range hosts {
		hosts[i], inboxes[i] = k.host(uint64(i+1), ""), k.newInbox()
	}
	for i, h := range hosts {
		for j, p := range hosts {
			if i != j {
				h.SetPeer(uint64(j+1), p.Addr())
			}
		}
	}
	for i, h := range hosts {
		h.Start(inboxes[i])
	}
	return hosts, inboxes
}

// arrival is one call of Receive or Deliver, with copies of what it brought.
type arrival struct {
	from  uint64
	kind  transport.Kind
	batch []transport.Envelope
	body  []byte
}

// inbox keeps what arrives, and detects calls for one peer and class that overlap.
type inbox struct {
	arrivals    chan arrival
	unreachable chan uint64
	quit        chan struct{}
	busy        [10][transport.Classes]atomic.Bool
	overlap     atomic.Bool
	calls       atomic.Uint64
	closed      atomic.Bool // the test has seen Close return
	late        atomic.Bool // something came after that
	// These are set before Start. admit decides which hosts are admitted; nil means every host. hold is called
	// in each delivery.
	admit func(transport.Introduction) error
	hold  func(arrival)
	sink  bool // what arrives is counted and not kept
	self  transport.Introduction
	proof []byte      // what it proves
	drops atomic.Bool // it does not keep what it has admitted
}

// newInbox makes the receiver of a host that was made before. At the end of the test it takes whatever comes,
// so that the host can close.
func (k *kit) newInbox() *inbox {
	in := &inbox{arrivals: make(chan arrival, 1<<12), unreachable: make(chan uint64, 1<<12), quit: make(chan struct{})}
	k.Cleanup(func() { close(in.quit) })
	return in
}

func (in *inbox) Receive(from uint64, batch []transport.Envelope) {
	in.take(arrival{from: from, kind: transport.Consensus, batch: append([]transport.Envelope(nil), batch...)})
}

func (in *inbox) Deliver(from uint64, kind transport.Kind, body []byte) {
	in.take(arrival{from: from, kind: kind, body: append([]byte{}, body...)})
}

func (in *inbox) take(a arrival) {
	busy := &in.busy[a.from%10][a.kind.Class()]
	if busy.Swap(true) {
		in.overlap.Store(true)
	}
	if in.closed.Load() {
		in.late.Store(true)
	}
	in.calls.Add(1)
	if in.hold != nil {
		in.hold(a)
	}
	if !in.sink {
		select {
		case in.arrivals <- a:
		case <-in.quit:
		}
	}
	runtime.Gosched()
	busy.Store(false)
}

func (in *inbox) Unreachable(peer uint64) {
	select {
	case in.unreachable <- peer:
	default:
	}
}

func (in *inbox) Introduce() transport.Introduction { return in.self }

// Prove implements transport.Prover.
func (in *inbox) Prove(channel [32]byte) []byte {
	if in.proof == nil {
		return nil
	}
	return append(channel[:], in.proof...)
}

// Keeps implements transport.Keeper.
func (in *inbox) Keeps(transport.Introduction) bool { return !in.drops.Load() }

func (in *inbox) Admit(peer transport.Introduction, _ string) error {
	if in.admit == nil {
		return nil
	}
	return in.admit(peer)
}

// forgetReports drops the reports so far.
func (in *inbox) forgetReports() {
	for len(in.unreachable) > 0 {
		<-in.unreachable
	}
}

func next[T any](k *kit, c <-chan T, what string) T {
	k.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(k.maxWait):
		k.Fatalf("%s: nothing within %v", what, k.maxWait)
		panic("unreachable")
	}
}

// within fails the test if f does not return, as it would if a transport blocks its caller.
func (k *kit) within(what string, f func()) {
	k.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	next(k, done, what)
}

func numbered(from, to, index uint64) transport.Envelope {
	return transport.Envelope{Group: 1, Message: raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, To: to, Index: index}}
}

func sendOne(h Host, e transport.Envelope) bool { return h.Send(e.Message.To, []transport.Envelope{e}) }

// reach sends messages, from index onwards, until one arrives, and returns the first unused index.
func (k *kit) reach(from Host, self, to uint64, in *inbox, index uint64) uint64 {
	k.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(k.maxWait); ; index++ {
		sendOne(from, numbered(self, to, index))
		select {
		case <-in.arrivals:
			return index + 1
		case <-again.C:
		case <-deadline:
			k.Fatalf("host %d cannot be reached within %v", to, k.maxWait)
		}
	}
}

// meet waits until every pair of hosts can reach each other in every class, and until what was sent for that
// has arrived.
func (k *kit) meet(hosts []Host, inboxes []*inbox) {
	k.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for i, h := range hosts {
		for j, in := range inboxes {
			if i == j {
				continue
			}
			from, to := uint64(i+1), uint64(j+1)
			last := [transport.Kinds]uint64{} // the number of the last message of each kind
			met := [transport.Kinds]bool{}
			deadline := time.After(k.maxWait)
			waiting := false // for what was sent, until the next tick
			for met != [transport.Kinds]bool{true, true, true, true} {
				for kind := range transport.Kind(transport.Kinds) {
					if met[kind] || waiting {
						continue
					}
					last[kind]++
					if kind == transport.Consensus {
						sendOne(h, numbered(from, to, last[kind]))
					} else {
						h.SendBytes(to, kind, []byte(fmt.Sprint(last[kind])))
					}
				}
				waiting = true
				select {
				case a := <-in.arrivals:
					// The last one that was sent: nothing else is under way.
					if a.kind == transport.Consensus {
						met[a.kind] = met[a.kind] || a.batch[len(a.batch)-1].Message.Index == last[a.kind]
					} else {
						met[a.kind] = met[a.kind] || string(a.body) == fmt.Sprint(last[a.kind])
					}
				case <-again.C:
					waiting = false
				case <-deadline:
					k.Fatalf("host %d is not reached by host %d in every class within %v: consensus, pulse, control, bulk: %v", to, from, k.maxWait, met)
				}
			}
		}
	}
}

// patterned returns n bytes that differ with seed and position.
func patterned(seed uint64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(seed + uint64(i)*7 + uint64(i>>8))
	}
	return b
}

// all runs functions at once and waits for them.
func (k *kit) all(what string, fs ...func()) {
	k.Helper()
	var group sync.WaitGroup
	for _, f := range fs {
		group.Go(f)
	}
	k.within(what, group.Wait)
}

// equal compares without the cost of a diff: cmp takes seconds for megabytes.
func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// arrived reports whether a message has arrived as it was sent. An entry may have got its sum on the way, and
// then that is right.
func arrived(sent, have transport.Envelope) bool {
	entries := slices.Clone(have.Message.Entries)
	for i := range entries {
		if sum := &entries[i].Sum; *sum == crcjoin.Sum(entries[i].Data) {
			*sum = 0
		}
	}
	have.Message.Entries = entries
	return equal(sent, have)
}
