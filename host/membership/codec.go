package membership

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// The bounds of what is written. A roster of MaxMembers members with the longest addresses takes half a MiB.
const (
	MaxMembers = 1 << 10
	MaxRemoved = 1 << 12
	MaxSteps   = 64
	maxStages  = 8
	// MaxAddrBytes bounds an address: host names have at most 253 characters, and a port follows.
	MaxAddrBytes = 260
)

// ErrFormat is wrapped by errors about bytes that cannot be read.
var ErrFormat = errors.New("millrace: what is written about members cannot be read")

const version = 2

// Integers are uvarints in their shortest form, lists and strings begin with their length.
//
//	change  version │ base │ plan 16 B │ stage │ steps
//	plan    version │ id 16 B │ base │ time │ done │ stages, each a list of steps
//	step    op u8, with 128 if it replaces, 64 if it uses a token │ id │ of Add: the member │ the token 32 B
//	member  id │ incarnation 16 B │ address │ keys, 32 B each
//	token   hash 32 B │ expires │ member │ learner u8
//	ended   id 16 B │ index │ cancelled u8 │ done
//	roster  version │ roster version │ changed │ time │ voters │ learners │ outgoing │ next learners
//	        │ auto leave u8 │ members │ removed │ 0, or 1 and a plan │ ended │ tokens
//
// Times are log time, in nanoseconds.

// Encode returns the bytes of a change.
func (c Change) Encode() []byte {
	b := binary.AppendUvarint([]byte{version}, c.Base)
	b = append(b, c.Plan[:]...)
	b = binary.AppendUvarint(b, uint64(c.Stage))
	return appendSteps(b, c.Steps)
}

// DecodeChange decodes a change. It is canonical: Encode returns the same bytes.
func DecodeChange(data []byte) (c Change, err error) {
	r := newReader(data)
	c.Base = r.uvarint(^uint64(0))
	copy(c.Plan[:], r.bytes(16))
	c.Stage = int(r.uvarint(maxStages))
	c.Steps = r.steps()
	return c, r.end("a change of members")
}

// Encode returns the bytes of a plan.
func (p *Plan) Encode() []byte { return p.appendTo([]byte{version}) }

func (p *Plan) appendTo(b []byte) []byte {
	b = append(b, p.ID[:]...)
	b = binary.AppendUvarint(b, p.Base)
	b = binary.AppendUvarint(b, uint64(p.Time))
	b = binary.AppendUvarint(b, uint64(p.Done))
	b = binary.AppendUvarint(b, uint64(len(p.Stages)))
	for _, steps := range p.Stages {
		b = appendSteps(b, steps)
	}
	return b
}

// DecodePlan decodes a plan. It is canonical: Encode returns the same bytes.
func DecodePlan(data []byte) (p Plan, err error) {
	r := newReader(data)
	p = r.plan()
	return p, r.end("a plan")
}

// Encode returns the bytes of a roster.
func (r *Roster) Encode() []byte {
	b := binary.AppendUvarint([]byte{version}, r.Version)
	b = binary.AppendUvarint(b, r.Changed)
	b = binary.AppendUvarint(b, uint64(r.Time))
	for _, ids := range [][]uint64{r.Conf.Voters, r.Conf.Learners, r.Conf.VotersOutgoing, r.Conf.LearnersNext} {
		b = binary.AppendUvarint(b, uint64(len(ids)))
		for _, id := range ids {
			b = binary.AppendUvarint(b, id)
		}
	}
	b = append(b, boolByte(r.Conf.AutoLeave))
	for _, members := range [][]Member{r.Members, r.Removed} {
		b = binary.AppendUvarint(b, uint64(len(members)))
		for _, m := range members {
			b = appendMember(b, m)
		}
	}
	if r.Plan == nil {
		b = append(b, 0)
	} else {
		b = r.Plan.appendTo(append(b, 1))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Ended)))
	for _, e := range r.Ended {
		b = append(b, e.ID[:]...)
		b = binary.AppendUvarint(b, e.Index)
		b = append(b, boolByte(e.Cancelled))
		b = binary.AppendUvarint(b, uint64(e.Done))
	}
	b = binary.AppendUvarint(b, uint64(len(r.Tokens)))
	for _, t := range r.Tokens {
		b = t.appendTo(b)
	}
	return b
}

// DecodeRoster decodes a roster, which may come from another host. It is canonical: Encode returns the same
// bytes. The members are those of the configuration.
func DecodeRoster(data []byte) (*Roster, error) {
	r := newReader(data)
	var s Roster
	s.Version, s.Changed, s.Time = r.uvarint(^uint64(0)), r.uvarint(^uint64(0)), r.time()
	s.Conf = raftpb.ConfState{Voters: r.ids(), Learners: r.ids(), VotersOutgoing: r.ids(), LearnersNext: r.ids(), AutoLeave: r.boolean()}
	s.Members, s.Removed = r.members(MaxMembers, 1), r.members(MaxRemoved, 0)
	if r.boolean() {
		p := r.plan()
		s.Plan = &p
	}
	s.Ended, s.Tokens = r.ended(), r.tokens()
	if err := r.end("the members of a group"); err != nil {
		return nil, err
	}
	if err := s.reject(); err != nil {
		return nil, err
	}
	return &s, nil
}

// reject says what is wrong with a roster that was read, or returns nil.
func (r *Roster) reject() error {
	ids := map[uint64]bool{}
	for _, list := range [][]uint64{r.Conf.Voters, r.Conf.Learners, r.Conf.VotersOutgoing, r.Conf.LearnersNext} {
		for _, id := range list {
			ids[id] = true
		}
	}
	for _, m := range r.Members {
		if !ids[m.ID] || m.Incarnation == (transport.Incarnation{}) {
			return fmt.Errorf("%w: member %d has no role, or no directory", ErrFormat, m.ID)
		}
	}
	switch {
	case len(r.Members) != len(ids):
		return fmt.Errorf("%w: the configuration has %d members, and %d are listed", ErrFormat, len(ids), len(r.Members))
	case len(r.Conf.Voters) == 0:
		return fmt.Errorf("%w: there are no voters", ErrFormat)
	case r.Plan != nil && (len(r.Plan.Stages) == 0 || r.Plan.Done > len(r.Plan.Stages)):
		return fmt.Errorf("%w: %d of %d stages of the plan under way are done", ErrFormat, r.Plan.Done, len(r.Plan.Stages))
	}
	return nil
}

func boolByte(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func appendMember(b []byte, m Member) []byte {
	b = binary.AppendUvarint(b, m.ID)
	b = append(b, m.Incarnation[:]...)
	b = binary.AppendUvarint(b, uint64(len(m.Addr)))
	b = append(b, m.Addr...)
	keys := m.Keys.list()
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = append(b, k[:]...)
	}
	return b
}

const (
	replacesFlag = 128
	tokenFlag    = 64
)

func appendSteps(b []byte, steps []Step) []byte {
	b = binary.AppendUvarint(b, uint64(len(steps)))
	for _, s := range steps {
		op := byte(s.Op)
		if s.Replaces {
			op |= replacesFlag
		}
		if !s.Token.IsZero() {
			op |= tokenFlag
		}
		if b = append(b, op); s.Op == Add {
			b = appendMember(b, s.Member)
			if !s.Token.IsZero() {
				b = append(b, s.Token[:]...)
			}
		} else {
			b = binary.AppendUvarint(b, s.ID)
		}
	}
	return b
}

// reader reads from the front of rest. After the first failure everything is zero.
type reader struct {
	rest []byte
	all  int
	bad  bool
}

func newReader(data []byte) *reader {
	r := &reader{rest: data, all: len(data)}
	if v := r.bytes(1); !r.bad {
		r.bad = v[0] != version
	}
	return r
}

func (r *reader) end(what string) error {
	if r.bad || len(r.rest) > 0 {
		return fmt.Errorf("%w: %d bytes of %s are too few, too many, out of range, or of a newer program", ErrFormat, r.all, what)
	}
	return nil
}

func (r *reader) bytes(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if r.bad || n <= 0 || v > most || n > 1 && r.rest[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) boolean() bool {
	b := r.bytes(1)
	if r.bad || b[0] > 1 {
		r.bad = true
		return false
	}
	return b[0] == 1
}

// ids reads a list of ids, which ascend.
func (r *reader) ids() (ids []uint64) {
	for range r.uvarint(MaxMembers) {
		id := r.uvarint(^uint64(0))
		if r.bad || id == 0 || len(ids) > 0 && id <= ids[len(ids)-1] {
			r.bad = true
			return nil
		}
		ids = append(ids, id)
	}
	return ids
}

func (r *reader) member() (m Member) {
	m.ID = r.uvarint(^uint64(0))
	copy(m.Incarnation[:], r.bytes(16))
	addr := r.bytes(int(r.uvarint(MaxAddrBytes)))
	if m.Addr = string(addr); !utf8.Valid(addr) {
		r.bad = true
	}
	for i := range r.uvarint(uint64(len(m.Keys))) {
		copy(m.Keys[i][:], r.bytes(len(Key{})))
		if m.Keys[i].IsZero() {
			r.bad = true
		}
	}
	return m
}

// members reads a list in which each id is at least apart above the one before.
func (r *reader) members(most, apart uint64) (members []Member) {
	for range r.uvarint(most) {
		m := r.member()
		if r.bad || m.ID == 0 || len(members) > 0 && m.ID < members[len(members)-1].ID+apart {
			r.bad = true
			return nil
		}
		members = append(members, m)
	}
	return members
}

func (r *reader) steps() (steps []Step) {
	for range r.uvarint(MaxSteps) {
		op := r.bytes(1)
		if r.bad {
			return nil
		}
		s := Step{Op: Op(op[0] &^ (replacesFlag | tokenFlag)), Replaces: op[0]&replacesFlag != 0}
		byToken := op[0]&tokenFlag != 0
		switch {
		case s.Op == Add:
			if s.Member = r.member(); byToken {
				copy(s.Token[:], r.bytes(len(s.Token)))
				r.bad = r.bad || s.Token.IsZero()
			}
		case s.Op < Add || s.Op > Remove || s.Replaces || byToken:
			r.bad = true
		default:
			s.ID = r.uvarint(^uint64(0))
		}
		steps = append(steps, s)
	}
	return steps
}

func (r *reader) time() time.Duration { return time.Duration(r.uvarint(maxTime)) }

func (r *reader) ended() (all []Ended) {
	for range r.uvarint(MaxEnded) {
		var e Ended
		copy(e.ID[:], r.bytes(16))
		e.Index, e.Cancelled, e.Done = r.uvarint(^uint64(0)), r.boolean(), int(r.uvarint(maxStages))
		if r.bad {
			return nil
		}
		all = append(all, e)
	}
	return all
}

func (r *reader) tokens() (all []Token) {
	for range r.uvarint(MaxTokens) {
		t := r.token()
		if r.bad {
			return nil
		}
		all = append(all, t)
	}
	return all
}

func (r *reader) plan() (p Plan) {
	copy(p.ID[:], r.bytes(16))
	p.Base, p.Time = r.uvarint(^uint64(0)), r.time()
	p.Done = int(r.uvarint(maxStages))
	for range r.uvarint(maxStages) {
		p.Stages = append(p.Stages, r.steps())
		if r.bad {
			return Plan{}
		}
	}
	return p
}
