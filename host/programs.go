package host

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/versions"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/transport"
)

// Which versions of a state machine the programs of the members can do: members ask each other, and their
// answers decide upgrades (versions.go) and promotions (execute.go).

// askVersions asks the other members which versions they can do, at most once in a heartbeat interval.
func (g *Group) askVersions() {
	number, due := g.machine.versions.Ask(g.host.clock.awakeAtBeat(), ticksPerHeartbeat)
	if !due || g.Err() != nil {
		return
	}
	g.machine.versions.Keep(g.memberIDs())
	for _, id := range g.otherMembers() {
		g.host.network.transport.SendBytes(id, transport.Control, versions.EncodeQuestion(g.id, number))
	}
}

// versionsOf returns which versions a member can do, as it has said itself.
func (g *Group) versionsOf(id uint64) (can statemachine.Versions, known bool) {
	if id == g.self {
		return g.machine.apply.Program(), true
	}
	said, known := g.machine.versions.Of(id)
	return said.Can, known
}

// receiveVersions receives a question or an answer.
func (h *Host) receiveVersions(from uint64, body []byte) error {
	r, err := versions.Decode(body)
	g := h.groups.get(r.Group)
	switch {
	case err != nil || g == nil || !g.members.HasOther(from):
	case body[0] == control.VersionAnswer:
		g.machine.versions.Take(from, r)
	case g.Err() == nil:
		said := versions.Said{Can: g.machine.apply.Program(), At: g.machine.apply.At().Version}
		h.network.transport.SendBytes(from, transport.Control, versions.EncodeAnswer(g.id, r.Number, said))
	}
	return err
}

// versionsTime is how long an operator's question waits for members.
const versionsTime = 500 * time.Millisecond

// awaitVersions asks the members, and waits until those that are heard have answered, or for a while.
func (g *Group) awaitVersions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, versionsTime)
	defer cancel()
	again := time.NewTicker(watchPace)
	defer again.Stop()
	for slices.ContainsFunc(g.otherMembers(), func(id uint64) bool {
		_, known := g.machine.versions.Of(id)
		return !known && g.isKnownHere(id)
	}) {
		g.askVersions()
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
	g.askVersions() // for the next question
}

// rejectVersionOf says why a learner cannot become a voter: it has said that its program cannot do the
// version of the group, so its machine is halted.
func (g *Group) rejectVersionOf(id uint64) error {
	can, known := g.versionsOf(id)
	if at := g.machine.apply.At().Version; known && !can.Can(at) {
		return fmt.Errorf("%w: the group is at version %d of its state machine, and the program of host %d can do %v, so its machine is halted; start host %d with a program that can, and plan again", membership.ErrRefused, at, id, can, id)
	}
	return nil
}
