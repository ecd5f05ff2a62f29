package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/vfs"
)

// BareName is the pipeline name of the baseline.
const BareName = "bare"

// bare is the baseline: the least that a durable log acknowledged by a majority can cost on this machine. The
// first voter takes all writes, and a client is answered when a majority of the voters have them on disk.
// There are no terms, no elections, no leader changes, no state machine and no catch-up: it is not Raft, and
// no data should be kept in it. It must be as fast as we can make it, or every ratio in our tables would
// flatter us.
//
//	Propose ──► ring (one copy: length, value)
//	             ├─► log of voter 1: pwrite of all queued, fdatasync ──────┐
//	             ├─► sender 2 ─TCP─► log of voter 2: the same, 8-byte ack ─┼─► majority ─► clients
//	             └─► sender 3 ─TCP─► log of voter 3: the same, 8-byte ack ─┘
//
// Everything is a position in one stream of bytes: tail is where the next record goes, each voter has a
// durable position, and a client waits for the position of its record's end. While a disk or a socket is busy
// the stream grows, and the next write takes all of it: group commit without a timer.
//
// The leader's disk works in parallel with the followers'. A follower's log goroutine reads the socket
// itself: to hand bytes from a reader to a writer would cost one wake-up and gain nothing, since the kernel
// buffers meanwhile.
//
// FullBareName is the same with checksums and state machines (bare_full.go), BareCohortName with a leader
// that waits for its clients (bare_cohort.go).
type bare struct {
	ring     *ring
	leader   *lab.RawPair
	senders  []*bareSender
	voters   []*bareVoter
	majority int
	many     bool // more than one write may be outstanding

	cohort   *cohort   // of BareCohortName; nil: what is there is written at once
	full     *fullBare // of FullBareName; nil: neither checksums nor machines
	overhead int       // the most bytes that a record takes beyond its value

	durable []atomic.Uint64 // position by voter; the leader's is durable[0]
	wake    []chan struct{} // one for each reader of the ring (log, senders): "there may be more"

	mu      sync.Mutex
	waiters []bareWaiter // in order of position
	commit  uint64       // majority position, never goes back
	closed  error        // why nothing is accepted any more

	entries atomic.Uint64
	quit    chan struct{}
	wg      sync.WaitGroup
}

// bareWaiter is a client whose record ends at end.
type bareWaiter struct {
	end    uint64
	answer chan error
	value  []byte // of FullBareName: what the leader applies before it answers
}

var errBareClosed = errors.New("bare: closed")

// openBare starts the baseline as a load.Target.
func openBare(_ context.Context, s load.Setup) (load.Target, error) {
	return newBare(s).opened(s)
}

func newBare(s load.Setup) *bare {
	b := &bare{
		many: s.InFlight > 1, overhead: recordHeaderBytes,
		ring: newRing(s), majority: s.Hosts/2 + 1,
		durable: make([]atomic.Uint64, s.Hosts), quit: make(chan struct{}),
	}
	b.ring.space = sync.NewCond(&b.mu)
	return b
}

// opened starts b, or closes what could be started.
func (b *bare) opened(s load.Setup) (load.Target, error) {
	if err := b.start(s); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *bare) start(s load.Setup) error {
	fs := vfs.WithSyncDelay(vfs.OS(), s.FsyncDelay)
	segmentBytes := int64(lab.SegmentBytes)
	if s.Brief {
		segmentBytes = lab.BriefSegmentBytes
	}
	for i := range s.Hosts {
		log, err := lab.CreateRaw(fs, filepath.Join(s.Dir, fmt.Sprintf("bare-%d", i+1)), segmentBytes)
		if err != nil {
			return err
		}
		b.wake = append(b.wake, make(chan struct{}, 1))
		if i == 0 {
			b.leader = log
			continue
		}
		b.voters = append(b.voters, &bareVoter{log: log})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	for _, v := range b.voters {
		out, in, err := connect(listener)
		if err != nil {
			return err
		}
		v.conn = in
		b.senders = append(b.senders, &bareSender{conn: out})
	}
	for i, v := range b.voters {
		b.wg.Go(func() { b.stopOn(b.follow(v, i+1)) })
		b.wg.Go(func() { b.stopOn(b.runSender(i + 1)) })
		b.wg.Go(func() { b.stopOn(b.runAcks(i + 1)) })
	}
	b.wg.Go(func() { b.stopOn(b.runLeaderLog()) })
	if b.full != nil {
		b.wg.Go(b.runMarks)
	}
	return nil
}

func (b *bare) follow(v *bareVoter, voter int) error {
	if b.full != nil {
		return v.runFull(newChecked(b.full.voters[voter], len(b.ring.buf)))
	}
	return v.run()
}

// Propose implements load.Target. While it waits it ignores ctx: Close answers every client.
func (b *bare) Propose(ctx context.Context, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	answer := load.GetAnswer()
	waiter := bareWaiter{answer: answer}
	var sum uint32
	if b.full != nil {
		waiter.value, sum = value, crc32.Checksum(value, castagnoli)
	}
	b.mu.Lock()
	for b.closed == nil && !b.ring.fits(b.overhead+len(value)) {
		if b.cohort != nil && b.cohort.waiting > 0 { // the log must take it to make room
			b.cohort.release(b)
			b.wakeAll()
		}
		b.ring.space.Wait()
	}
	if b.closed != nil {
		b.mu.Unlock()
		return b.closed
	}
	if b.full == nil {
		waiter.end = b.ring.append(value)
	} else {
		waiter.end = b.full.append(b.ring, value, sum)
	}
	b.waiters = append(b.waiters, waiter)
	more := b.cohort == nil || b.cohort.added(b)
	b.mu.Unlock()

	b.entries.Add(1)
	if more {
		b.wakeAll()
	}
	err := <-answer
	load.PutAnswer(answer)
	return err
}

func (b *bare) wakeAll() {
	for _, w := range b.wake {
		notify(w)
	}
}

// notify leaves a token that says "look again". One waiting token is enough.
func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// setDurable records that a voter has everything below position on disk. It answers the clients whose records
// a majority now holds.
func (b *bare) setDurable(voter int, position uint64) {
	b.durable[voter].Store(position)
	commit := b.majorityPosition()
	if b.full != nil {
		b.full.applying.Lock() // values are applied in order
		defer b.full.applying.Unlock()
	}

	b.mu.Lock()
	if commit <= b.commit {
		b.mu.Unlock()
		return
	}
	b.commit = commit
	n := 0
	for n < len(b.waiters) && b.waiters[n].end <= commit {
		n++
	}
	done := b.waiters[:n:n]
	b.waiters = b.waiters[n:] // append moves to a new array once this one is used up
	if b.full != nil && n > 0 {
		b.full.answered = done[n-1].end
	}
	more := b.cohort != nil && b.cohort.committed(b, n)
	b.mu.Unlock()
	if more {
		b.wakeAll()
	}
	if b.full != nil {
		b.full.apply(done)
	}
	for _, w := range done {
		w.answer <- nil
	}
}

// majorityPosition returns the highest position that a majority holds durably.
func (b *bare) majorityPosition() uint64 {
	var few [8]uint64
	positions := few[:0]
	for i := range b.durable {
		positions = append(positions, b.durable[i].Load())
	}
	slices.Sort(positions)
	return positions[len(positions)-b.majority]
}

// stopOn stops everything when one part has failed: the baseline does not survive failures.
func (b *bare) stopOn(err error) {
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopLocked(err)
}

func (b *bare) stopLocked(err error) {
	if b.closed != nil {
		return
	}
	b.closed = err
	close(b.quit)
	if b.cohort != nil && b.cohort.timer != nil {
		b.cohort.timer.Stop()
	}
	b.ring.space.Broadcast()
	for _, w := range b.waiters {
		w.answer <- err
	}
	b.waiters = nil
	for _, s := range b.senders {
		_ = s.conn.Close() // ends the goroutines that read or write it
	}
	for _, v := range b.voters {
		if v.conn != nil {
			_ = v.conn.Close()
		}
	}
}

// Close implements load.Target.
func (b *bare) Close() error {
	b.stopOn(errBareClosed)
	b.wg.Wait()
	var errs []error
	for _, log := range b.logs() {
		errs = append(errs, log.Close())
	}
	return errors.Join(errs...)
}

func (b *bare) logs() []*lab.RawPair {
	var logs []*lab.RawPair
	if b.leader != nil {
		logs = append(logs, b.leader)
	}
	for _, v := range b.voters {
		logs = append(logs, v.log)
	}
	return logs
}

// Counters implements load.Target. bare has nothing to apply. Its followers do not parse the bytes, so their
// entries are counted by the share of the stream that they hold, which is exact for values of one size.
func (b *bare) Counters() load.Counters {
	if b.full != nil {
		return b.fullCounters()
	}
	var c load.Counters
	entries, tail := b.entries.Load(), b.tail()
	for i, log := range b.logs() {
		c.Fsyncs += log.Syncs()
		c.Appends += log.Appends()
		c.FsyncBytes += log.SyncedBytes()
		if tail > 0 {
			c.AppendedEntries += uint64(float64(entries) * float64(b.durable[i].Load()) / float64(tail))
		}
	}
	return c
}

func (b *bare) tail() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ring.tail
}
