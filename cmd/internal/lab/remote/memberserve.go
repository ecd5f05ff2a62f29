package remote

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/metrics"
	"strconv"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/outcome"
)

// own returns this member, or nil as long as it is not open.
func (m *memberProcess) own() *rig.Member {
	if c := m.cluster.Load(); c != nil {
		return c.Member(int(m.ID - 1))
	}
	return nil
}

// handle answers one request of a load.
func (m *memberProcess) handle(ctx context.Context, r Request) (Status, string) {
	if r.Kind != Opaque {
		return Failed, "a member of the lab answers loads, and no other clients"
	}
	kind, g, rest, err := memberParseRequest(r.Value, m.Groups)
	if err != nil {
		return Failed, err.Error()
	}
	switch kind {
	case KindPropose:
		return m.propose(ctx, g, rest)
	case KindRead:
		return m.read(ctx, g, rig.Reading(rest))
	case KindHello:
		h := m.hello
		experiment.EndOfRun(&h.Environment)
		return asJSON(h)
	case KindUsage:
		return asJSON(m.usage(len(rest) == 1 && rest[0] == 1))
	case KindGroups:
		return asJSON(m.groups())
	case KindForm:
		return m.form(g, rest)
	case KindLead:
		return m.lead(ctx, g, rest)
	case KindEcho:
		return Done, string(rest)
	}
	return Failed, fmt.Sprintf("a request of the kind %q is not known to %s", string(kind), m.Version)
}

func asJSON(v any) (Status, string) {
	text, err := json.Marshal(v)
	if err != nil {
		return Failed, err.Error()
	}
	if len(text) > MaxBody {
		return Failed, fmt.Sprintf("the answer has %d bytes, more than %d", len(text), MaxBody)
	}
	return Done, string(text)
}

// refused turns the error of something that only a leader does into an answer. Whether the command may have
// been committed decides whether another member may get it.
func refused(err error) (Status, string) {
	var elsewhere *outcome.NotLeaderError
	switch {
	case outcome.MayHaveCommitted(err):
		return Unknown, err.Error()
	case errors.As(err, &elsewhere) && elsewhere.Leader != 0:
		return NotTaken, strconv.FormatUint(elsewhere.Leader, 10)
	case errors.As(err, &elsewhere), errors.Is(err, outcome.ErrStopped):
		return NotTaken, ""
	}
	return Failed, err.Error()
}

func (m *memberProcess) propose(ctx context.Context, g int, command []byte) (Status, string) {
	group := m.own().Group(g)
	if group == nil {
		return NotTaken, ""
	}
	receipt, err := group.Propose(ctx, command)
	if err == nil && !m.EarlyAck {
		if err := rig.Applied(ctx, group, receipt.Index); err != nil {
			return Unknown, err.Error()
		}
	}
	if err != nil {
		return refused(err)
	}
	return Done, ""
}

func (m *memberProcess) read(ctx context.Context, g int, by rig.Reading) (Status, string) {
	if by, err := rig.ParseReading(string(by)); err != nil || by == rig.ByLog {
		return Failed, fmt.Sprintf("%q is not a way to read here", by)
	}
	values, err := m.own().Read(ctx, by, g)
	if err != nil {
		return refused(err)
	}
	return Done, string(binary.LittleEndian.AppendUint64(nil, values))
}

// lead hands a group over to a member. It waits until that leads.
func (m *memberProcess) lead(ctx context.Context, g int, rest []byte) (Status, string) {
	group := m.own().Group(g)
	if group == nil || len(rest) != 8 {
		return NotTaken, ""
	}
	if err := group.TransferLeadership(ctx, binary.LittleEndian.Uint64(rest)); err != nil {
		return refused(err)
	}
	return Done, ""
}

// form returns a piece of the form of a machine.
func (m *memberProcess) form(g int, rest []byte) (Status, string) {
	if len(rest) != 8 {
		return Failed, "a piece of a form needs an offset"
	}
	offset := binary.LittleEndian.Uint64(rest)
	all := m.own().Machine(g).AppendTo(nil)
	if offset > uint64(len(all)) {
		return Failed, fmt.Sprintf("offset %d, and the form has %d bytes", offset, len(all))
	}
	piece := all[offset:min(uint64(len(all)), offset+formPieceBytes)]
	return Done, string(append(binary.LittleEndian.AppendUint64(nil, uint64(len(all))), piece...))
}

func (m *memberProcess) usage(fresh bool) Usage {
	if fresh {
		load.ResetFootprint()
	}
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return Usage{
		Life: m.hello.Life, Process: load.ReadUsage(), Counters: m.cluster.Load().Counters(), PeakBytes: load.ReadFootprint().PeakBytes,
		HeapBytes: float64(heap[0].Value.Uint64()),
	}
}

func (m *memberProcess) groups() []GroupState {
	all := make([]GroupState, m.Groups)
	for g := range all {
		s := &all[g]
		group := m.own().Group(g)
		if group == nil {
			s.Err = outcome.ErrStopped.Error()
			continue
		}
		status := group.Status()
		s.Leader, s.Term, s.Founded = status.Leader, status.Term, group.Founding().Founded
		if err := group.Err(); err != nil {
			s.Err = err.Error()
		}
		machine := m.own().Machine(g)
		s.Machine, s.Run = machine.Seen()
		if err := machine.Violation(); err != nil {
			s.Broken = err.Error()
		}
	}
	return all
}

// close ends what was opened: first the host, which hands over what it leads and answers its clients.
func (m *memberProcess) close() (err error) {
	if c := m.cluster.Load(); c != nil {
		err = errors.Join(m.own().Stop(), c.Close())
	}
	if m.server != nil {
		err = errors.Join(err, m.server.Close())
	}
	if m.health != nil {
		err = errors.Join(err, m.health.close())
	}
	return err
}
