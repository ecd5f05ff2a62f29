package sim

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/sim/property"
)

// Clients that hand in several commands at once gather the outcomes by their tags. Each tag must come once,
// and none that was refused.

// maxTogether bounds the commands that are handed in at once. Completions hold fewer than may be under way,
// so that they are full at times.
const (
	maxTogether = 6
	maxGathered = maxPendingEver / 2
)

// gathering is what a replica's process knows of its tags.
type gathering struct {
	done  *host.Completions
	typed any // *millrace.Completions of a user, instead
	sunk  any // *[]millrace.Completion that a sink has got; nil: there is none
	next  uint64
	under map[uint64]*gathered
}

// gathered is the outcome of one command, when it has come.
type gathered struct {
	done    bool
	receipt outcome.Receipt
	err     error
	result  any
}

// Poll implements ending.
func (g *gathered) Poll() (outcome.Receipt, bool, error) { return g.receipt, g.done, g.err }

// begin returns the places of n tags, and the tags.
func (g *gathering) begin(n int) (tags []uint64, places []*gathered) {
	for range n {
		g.next++
		tags, places = append(tags, g.next), append(places, &gathered{})
	}
	return tags, places
}

// took keeps those that were taken.
func (g *gathering) took(tags []uint64, places []*gathered) {
	for i, tag := range tags {
		g.under[tag] = places[i]
	}
}

// tell takes an outcome.
func (g *gathering) tell(r *replica, tag uint64, receipt outcome.Receipt, result any, err error) {
	place := g.under[tag]
	if place == nil {
		r.life.w.breaks(property.ExactlyOnce, "%s tells an outcome of tag %d, which was not taken or was told before: %+v, %v", r.name, tag, receipt, err)
		return
	}
	delete(g.under, tag)
	*place = gathered{done: true, receipt: receipt, err: err, result: result}
}

// handTogether hands in a command, and others of the same moment.
func (c *clients) handTogether(r *replica, command string) {
	commands := []string{command}
	if c.w.nemesis.stopped {
		r.ghost.lastCommand = command
	} else {
		for range c.rng.IntN(maxTogether) {
			c.submitted++
			commands = append(commands, fmt.Sprintf("command %d", c.submitted))
		}
	}
	if r.gather == nil {
		r.gather = &gathering{done: host.NewCompletions(maxGathered), under: map[uint64]*gathered{}}
	}
	tags, places := r.gather.begin(len(commands))
	encoded := make([][]byte, len(commands))
	for i, text := range commands {
		encoded[i] = []byte(text)
	}
	taken, err := r.group.SubmitMany(encoded, tags, r.gather.done)
	c.refused(r, taken, len(commands), err)
	r.gather.took(tags[:taken], places)
	for _, text := range commands[taken:] {
		r.ghost.refused[text] = true
	}
	for i, text := range commands[:taken] {
		r.pending = append(r.pending, pending{text, places[i], c.w.now})
	}
}

// submitUserTogether hands in several commands of a user.
func (c *clients) submitUserTogether(r *replica) {
	n := 1
	if !c.w.nemesis.stopped {
		n += c.rng.IntN(maxTogether)
	}
	taken, err := c.w.user.submitTogether(r, c.submitted, n)
	c.submitted += n - 1
	c.refused(r, len(taken), n, err)
	r.pending = append(r.pending, taken...)
}

// refused checks why not all commands were taken.
func (c *clients) refused(r *replica, taken, of int, err error) {
	r.observeRefusal(err)
	switch {
	case (err == nil) != (taken == of):
		c.w.breaks(property.ExactlyOnce, "%s takes %d of %d commands and says %v", r.name, taken, of, err)
	case err != nil && !errors.Is(err, outcome.ErrStopped) && !errors.Is(err, outcome.ErrOverloaded) && !errors.Is(err, outcome.ErrCompletionsFull) && !isHalted(err):
		c.w.breaks(property.Failures, "%s refuses a command: %v", r.name, err)
	}
}

// pollTogether takes the outcomes that have come.
func (r *replica) pollTogether() {
	switch g := r.gather; {
	case g == nil:
	case g.typed != nil:
		r.life.w.user.pollTogether(r)
	default:
		for _, o := range g.done.Take(nil) {
			g.tell(r, o.Tag, o.Receipt, nil, o.Err)
		}
	}
}

func (u *userRun[C, R]) submitTogether(r *replica, first, n int) (all []pending, err error) {
	if r.gather == nil {
		r.gather = newTyped[R](r)
	}
	commands := make([]numbered[C], n)
	for i := range commands {
		commands[i] = u.command(r, first+i)
	}
	tags, places := r.gather.begin(n)
	taken, err := r.node.(*millrace.Node[numbered[C], R]).SubmitMany(commands, tags, r.gather.typed.(*millrace.Completions[R]))
	r.gather.took(tags[:taken], places)
	for i := range taken {
		o := u.begin(r, commands[i])
		o.poll = func() (result R, _ outcome.Receipt, _ bool, _ error) {
			if places[i].done {
				result = places[i].result.(R)
			}
			return result, places[i].receipt, places[i].done, places[i].err
		}
		all = append(all, pending{commands[i].text, o, u.w.now})
	}
	return all, err
}

func (u *userRun[C, R]) pollTogether(r *replica) {
	for _, o := range r.gather.typed.(*millrace.Completions[R]).Take(nil) {
		r.gather.tell(r, o.Tag, o.Receipt, o.Result, o.Err)
	}
	if r.gather.sunk == nil {
		return
	}
	sunk := r.gather.sunk.(*[]millrace.Completion[R])
	for _, o := range *sunk {
		r.gather.tell(r, o.Tag, o.Receipt, o.Result, o.Err)
	}
	*sunk = nil
}

// newTyped returns where the outcomes of a user's commands go at a replica. On each second host it is a sink.
func newTyped[R any](r *replica) *gathering {
	g := &gathering{typed: millrace.NewCompletions[R](maxGathered), under: map[uint64]*gathered{}}
	if r.life.host.id%2 == 1 {
		sunk := new([]millrace.Completion[R])
		g.sunk = sunk
		g.typed = millrace.NewSink(maxGathered, func(outcomes []millrace.Completion[R]) { *sunk = append(*sunk, outcomes...) })
	}
	return g
}
