package session

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Options bound a table. All members of a group must have the same ones: they decide which commands are
// applied. The zero value stands for the defaults.
type Options struct {
	// Expiry is the log time after which an idle session is forgotten, if there is space for it for so long
	// (MaxBytes). The default is 1 h, the minimum 1 s.
	Expiry time.Duration
	// MaxBytes bounds the memory of the sessions and their numbers; default 16 MiB, at least MaxSessionBytes.
	// When it is full, the session that was idle for longest is forgotten. With the default, the 52,428
	// last sessions of one unanswered command each are known, however long ago the first of them came. Each
	// member holds as much memory, and each snapshot has the sessions. A table that has no space for the
	// sessions that come within 10 ms of log time refuses new sessions. They are born with sessions that it
	// has forgotten.
	MaxBytes int64
	// MaxSessionBytes bounds one session; default 1 MiB, at least 4 KiB. A session takes SessionBytes and
	// NumberBytes for each number that it has applied and whose answer its client still waits for.
	MaxSessionBytes int64
	// MaxResultBytes bounds the memory of the results that are kept; 0, the default, keeps none. When it is
	// full, the oldest is forgotten. A result that takes more than a quarter of it is not kept.
	MaxResultBytes int64
}

// The bytes that the bounds of Options count.
const (
	// SessionBytes is what a session counts.
	SessionBytes = 256
	// NumberBytes is what each number of a session counts.
	NumberBytes = 64
	// ResultOverheadBytes is what each kept result counts besides its own bytes.
	ResultOverheadBytes = 64

	minSessionBytes = 4 << 10
	minExpiry       = time.Second
)

// WithDefaults returns o with a value for each bound.
func (o Options) WithDefaults() Options {
	if o.Expiry == 0 {
		o.Expiry = time.Hour
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = max(16<<20, o.MaxSessionBytes)
	}
	if o.MaxSessionBytes == 0 {
		o.MaxSessionBytes = min(1<<20, o.MaxBytes)
	}
	return o
}

// Validate explains what is wrong with o, in which 0 stands for a default.
func (o Options) Validate() error {
	o = o.WithDefaults()
	switch {
	case o.Expiry < minExpiry:
		return fmt.Errorf("millrace: sessions expire after %v, want at least %v", o.Expiry, minExpiry)
	case o.MaxSessionBytes < minSessionBytes || o.MaxSessionBytes > o.MaxBytes:
		return fmt.Errorf("millrace: a session may take %d bytes, want %d to %d, which all sessions may take", o.MaxSessionBytes, minSessionBytes, o.MaxBytes)
	case o.MaxResultBytes < 0:
		return fmt.Errorf("millrace: kept results may take %d bytes, want at least 0", o.MaxResultBytes)
	}
	return nil
}

// MaxNumbers returns how many numbers of one session may wait for their answers: a client that never has more
// never gets Full.
func (o Options) MaxNumbers() int {
	return int((o.WithDefaults().MaxSessionBytes - SessionBytes) / NumberBytes)
}

// Verdict says what to do with a command that has a Mark.
type Verdict uint8

const (
	// Fresh: the command must be applied. The table has registered its number.
	Fresh Verdict = iota + 1
	// Duplicate: the number was applied before. The Record says where.
	Duplicate
	// Forgotten: the number is below the lowest that its client waits for. It may have been applied or not,
	// and it will not be applied any more.
	Forgotten
	// Expired: the table may have forgotten the session. The command may have been applied before, and it
	// will not be applied any more.
	Expired
	// Full: the session has too many numbers that wait for answers. The command is not applied now. A copy of
	// it that comes later may be, until a command of the session has a lowest number above it.
	Full
)

var verdicts = [...]string{Fresh: "fresh", Duplicate: "duplicate", Forgotten: "forgotten", Expired: "expired", Full: "full"}

func (v Verdict) String() string {
	if int(v) < len(verdicts) && verdicts[v] != "" {
		return verdicts[v]
	}
	return fmt.Sprintf("verdict %d", uint8(v))
}

// Record is what a table knows of an applied number.
type Record struct {
	Index, Term uint64 // of the entry that was applied
	Pos         uint32 // of its command
	// Refused says that the command was not applied: Refuse was called for it.
	Refused bool
	// Result is what Keep was given, if Kept. It must not be changed.
	Result []byte
	Kept   bool
}

// Table is the sessions of one member. The members of a group give it the same commands in log order, and
// their tables stay equal. A Table is used by one goroutine at a time.
//
// For each command: Advance with the stamp of its header, if there is one; Apply with its mark, if there is
// one. If results are kept, Keep must be called once for each Fresh, in the same order, but possibly later.
type Table struct {
	options  Options
	now      time.Duration
	floor    time.Duration // an unknown session that was born at it or before it is Expired; -1: none
	bytes    int64         // what sessions and numbers count
	evicted  uint64        // sessions that were forgotten for lack of space, until TakeEvicted
	sessions map[ID]*session
	idle     *session // the ring of all sessions; its next is the one that was idle for longest
	last     *session // that was found last; nil if it is gone
	results  results
}

// New returns an empty table. o must be valid.
func New(o Options) *Table {
	t := &Table{options: o.WithDefaults(), floor: -1, sessions: map[ID]*session{}, idle: &session{}}
	t.idle.next, t.idle.prev = t.idle, t.idle
	t.results.most = t.options.MaxResultBytes
	return t
}

// Options returns the bounds of the table.
func (t *Table) Options() Options { return t.options }

// Now returns the log time: the highest stamp so far.
func (t *Table) Now() time.Duration { return t.now }

// Sessions returns the number of sessions, and what they count against MaxBytes.
func (t *Table) Sessions() (n int, bytes int64) { return len(t.sessions), t.bytes }

// TakeEvicted returns how many sessions were forgotten because the table was full, since the last call. Those
// that have expired do not count.
func (t *Table) TakeEvicted() (n uint64) {
	n, t.evicted = t.evicted, 0
	return n
}

// Advance takes a stamp, forgets the sessions that have expired, and returns the log time. A stamp before the
// log time changes nothing.
func (t *Table) Advance(stamp time.Duration) (now time.Duration) {
	if stamp <= t.now {
		return t.now
	}
	t.now = stamp
	for s := t.idle.next; s != t.idle && t.now-s.used > t.options.Expiry; s = t.idle.next {
		t.forget(s)
	}
	return t.now
}

// Apply says what to do with the command at a position, in an entry of a term, which is number m.Number of
// its session. If it is Fresh, the number is registered.
func (t *Table) Apply(m Mark, at raftpb.Position, term uint64) (Verdict, Record) {
	s := t.find(m.ID)
	if s == nil {
		if t.mayBeForgotten(m.Birth) {
			return Expired, Record{}
		}
		s = t.begin(m)
	}
	t.touch(s)
	if m.Low > s.low {
		t.bytes -= s.forgetBelow(m.Low, &t.results)
	}
	if m.Number < s.low {
		return Forgotten, Record{}
	}
	place, found := s.search(m.Number)
	switch {
	case found:
		return Duplicate, s.numbers[place].record()
	case s.bytes()+NumberBytes > t.options.MaxSessionBytes:
		return Full, Record{}
	}
	t.bytes += NumberBytes
	place = s.insert(place, number{value: m.Number, index: at.Index, term: term, pos: at.Pos})
	for t.bytes > t.options.MaxBytes && t.idle.next != s {
		t.floor = max(t.floor, t.idle.next.id.Birth)
		t.evicted++
		t.forget(t.idle.next)
	}
	if t.results.most > 0 {
		s.numbers[place].result = t.results.await()
	}
	return Fresh, Record{}
}

// Keep keeps the result of the first Fresh command for which it was not called yet. A nil result is none. The
// result belongs to the table from then on. Without MaxResultBytes, Keep does nothing.
func (t *Table) Keep(result []byte) { t.results.keep(result) }

// Refuse notes that the latest Fresh command is not applied, after all. A copy of it is a Duplicate of a
// command that was refused. It takes the place of Keep for this command, so Keep must have been called for
// those before it.
func (t *Table) Refuse(m Mark) {
	t.MarkRefused(m)
	t.Keep(nil)
}

// MarkRefused is Refuse, where Keep is called in its turn.
func (t *Table) MarkRefused(m Mark) {
	if s := t.find(m.ID); s != nil {
		if at, found := s.search(m.Number); found {
			s.numbers[at].refused = true
		}
	}
}

// Lookup returns what the table knows of a number, without using the session.
func (t *Table) Lookup(id ID, number uint64) (Record, bool) {
	if s := t.find(id); s != nil {
		if at, found := s.search(number); found {
			return s.numbers[at].record(), true
		}
	}
	return Record{}, false
}

// MayHaveForgotten reports whether commands of a session may have been applied that the table does not know:
// the session is not in it, and may have been before.
func (t *Table) MayHaveForgotten(id ID) bool { return t.find(id) == nil && t.mayBeForgotten(id.Birth) }

// mayBeForgotten reports whether a session that the table does not know, and that was born then, may have
// been in it before. A birth in the future is no honest one: it would be believed again after each expiry.
func (t *Table) mayBeForgotten(birth time.Duration) bool {
	return birth <= t.floor || t.now-birth > t.options.Expiry || birth > t.now
}

func (t *Table) find(id ID) *session {
	if t.last != nil && t.last.id == id {
		return t.last
	}
	s := t.sessions[id]
	if s != nil {
		t.last = s
	}
	return s
}

func (t *Table) begin(m Mark) *session {
	s := &session{id: m.ID, low: m.Low}
	t.add(s)
	return s
}

// add adds a session as the one that was used last.
func (t *Table) add(s *session) {
	t.sessions[s.id] = s
	t.bytes += s.bytes()
	s.before(t.idle)
	t.last = s
}

// touch notes that a session is in use: it becomes the last to expire.
func (t *Table) touch(s *session) {
	s.used = t.now
	if s.next != t.idle {
		s.unlink()
		s.before(t.idle)
	}
}

func (t *Table) forget(s *session) {
	t.bytes -= s.bytes()
	for i := range s.numbers[s.head:] {
		t.results.free(s.numbers[s.head+i].result)
	}
	s.unlink()
	delete(t.sessions, s.id)
	if t.last == s {
		t.last = nil
	}
}
