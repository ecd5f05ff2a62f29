package proposals

import "github.com/millrace/millrace/host/outcome"

// delivery has outcomes for the same Completions, which get them together: one lock for all of one answer.
type delivery struct {
	to       *Completions
	outcomes []outcome.Completion
}

func (g *delivery) add(to *Completions, c outcome.Completion) {
	if to != g.to {
		g.flush()
		g.to = to
	}
	g.outcomes = append(g.outcomes, c)
}

func (g *delivery) flush() {
	if g.to == nil {
		return
	}
	g.to.Add(g.outcomes...)
	clear(g.outcomes) // errors must not be kept alive
	g.to, g.outcomes = nil, g.outcomes[:0]
}
