package flight

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
)

// Recorder holds the recordings of all groups of a host, in memory, within a bound.
//
// A recording is a chain of stretches, and each stretch begins with a checkpoint of the core, so that it
// replays by itself. When the bound is reached the oldest full stretch goes, whichever group it belongs to.
// A busy group does not push out the latest events of a quiet group, whose stretch is not full. Many groups
// have short stretches, so that the unfinished ones take about half of the bound. Its least stretch is
// minStretchBytes, so with very many groups a recorder takes up to twice that for each, whatever its bound.
//
// Rejected: a file that is written all the time. It would share the disk with the log that it is to explain,
// and say nothing when that disk hangs. Rejected: one ring for all groups. With its end it would cut off
// groups in the middle, which then had to be left out, or to write checkpoints for each other.
type Recorder struct {
	data  Data
	form  form
	bound int64
	now   func() time.Duration

	limit atomic.Int64 // on the length of a stretch, as of the number of open logs

	mu   lock.Mutex
	used int64 // memory of all stretches
	logs int   // that are open
	full []*stretch
	open map[*Log]*stretch
	seq  uint64
}

const (
	// MinBytes is the least bound of a recorder.
	MinBytes = 64 << 10

	minStretchBytes = 4 << 10
	maxBlockBytes   = 64 << 10
	minBlockBytes   = 512
	// checkpointShare: a stretch is at least so many times as long as its checkpoint.
	checkpointShare = 4
	// largestState is the part of the bound that the state of a core may take.
	largestState = 16
	// retryReadys is after how many Readys a core whose state was too large is looked at again.
	retryReadys = 256
)

// NewRecorder returns a recorder that uses about maxBytes of memory. now is a clock that never goes back.
func NewRecorder(maxBytes int64, data Data, now func() time.Duration) *Recorder {
	r := &Recorder{form: form{payloads: data == Payloads, hashes: data == Hashes}, data: data, bound: maxBytes, now: now, open: map[*Log]*stretch{}}
	r.setLimit()
	return r
}

// stretch is a stretch of a recording. Its writer, the group's turn, publishes whole records by n, so a
// reader needs no lock and waits for no turn, not even for one that hangs. Records are encoded where they
// stay, at the end of the last block.
type stretch struct {
	group, seq uint64
	at         time.Duration
	continues  bool // it begins where the stretch before it of the same group ends
	first      *block
	n          atomic.Int64

	// Owned by the writer.
	last   *block
	length int64
	least  int64 // it does not end before

	memory int64 // of the blocks; guarded by the recorder
}

type block struct {
	data []byte // with its whole capacity as its length
	next *block
	used int // by the writer
}

// bytes returns a copy of what is published.
func (s *stretch) bytes() []byte {
	n := int(s.n.Load())
	if n == 0 {
		return nil
	}
	b := make([]byte, 0, n)
	for at := s.first; ; at = at.next { // what comes after n is the writer's
		if b = append(b, at.data[:min(len(at.data), n-len(b))]...); len(b) == n {
			return b
		}
	}
}

// space returns the rest of the last block, for records to be appended to.
func (s *stretch) space() []byte {
	b := s.last
	return b.data[b.used:b.used]
}

// add makes a record that was appended to space a part of the stretch. One that did not fit was moved
// elsewhere by append, and is copied into more blocks.
func (s *stretch) add(r *Recorder, record []byte) {
	s.length += int64(len(record))
	if b := s.last; len(record) <= len(b.data)-b.used {
		b.used += len(record)
		return
	}
	for len(record) > 0 {
		if s.last.used == len(s.last.data) {
			s.extend(r, len(record))
		}
		k := copy(s.last.data[s.last.used:], record)
		s.last.used += k
		record = record[k:]
	}
}

// extend adds a block.
func (s *stretch) extend(r *Recorder, need int) {
	b := &block{data: make([]byte, max(min(2*len(s.last.data), maxBlockBytes), need))}
	s.last.next = b
	s.last = b
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count(s, b)
}

// count adds the memory of a block to that of its stretch.
func (r *Recorder) count(s *stretch, b *block) {
	s.memory += int64(len(b.data))
	r.used += int64(len(b.data))
	r.evict()
}

// evict drops the oldest full stretches as long as the bound is exceeded.
func (r *Recorder) evict() {
	for r.used > r.bound && len(r.full) > 0 {
		r.used -= r.full[0].memory
		r.full[0] = nil
		r.full = r.full[1:]
	}
}

// setLimit adapts the length of a stretch to the number of logs.
func (r *Recorder) setLimit() {
	r.limit.Store(max(min(r.bound/16, r.bound/int64(2*max(r.logs, 1))), minStretchBytes))
}

// begin puts an empty stretch in the place of l's present one, which is full.
func (r *Recorder) begin(l *Log) *stretch {
	l.publish()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(l)
	r.seq++
	first := &block{data: make([]byte, minBlockBytes)}
	s := &stretch{group: l.group, seq: r.seq, at: r.now(), continues: l.stretch != nil, first: first, last: first}
	r.open[l] = s
	r.count(s, first)
	return s
}

func (r *Recorder) end(l *Log) {
	if s := r.open[l]; s != nil {
		delete(r.open, l)
		r.full = append(r.full, s)
		r.evict()
	}
}

// Log is the recording of one group: of one core at a time. A nil Log records nothing. Its methods are called
// by the group's turn.
type Log struct {
	recorder *Recorder
	group    uint64
	form     form

	stretch *stretch // nil: nothing is recorded now
	inside  bool     // an input is under way, to which the replies of Storage belong
	config  raft.Config
	wait    int // Readys before a state that was too large is looked at again
}

// Open returns the recording of a group that is being opened. A nil Recorder returns nil.
func (r *Recorder) Open(group uint64) *Log {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs++
	r.setLimit()
	return &Log{recorder: r, group: group, form: r.form}
}

// Close ends the recording. What was recorded is kept until it is the oldest.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.publish()
	l.recorder.mu.Lock()
	defer l.recorder.mu.Unlock()
	l.recorder.logs--
	l.recorder.setLimit()
	l.recorder.end(l)
}

// begin begins a record, to which its caller appends before it gives it to put. It returns nil if nothing is
// recorded now.
func (l *Log) begin(k Kind) []byte {
	if l == nil || l.stretch == nil {
		return nil
	}
	return append(l.stretch.space(), byte(k))
}

// add ends a record. Readers see it when it is published.
func (l *Log) add(record []byte) { l.stretch.add(l.recorder, record) }

// feed ends the record of an input, which the core is given next.
func (l *Log) feed(record []byte) {
	l.add(record)
	l.inside = true
}

// publish shows readers all records so far. It is an atomic store, which costs as much as an input, so it is
// called for many inputs together: after each Ready, at the end of a turn (Node.Publish), and before a
// question that may have to wait for a disk.
func (l *Log) publish() {
	if l == nil || l.stretch == nil {
		return
	}
	if s := l.stretch; s.n.Load() != s.length {
		s.n.Store(s.length)
	}
}
