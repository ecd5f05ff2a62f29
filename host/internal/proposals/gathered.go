package proposals

import "github.com/millrace/millrace/host/outcome"

// gathered are outcomes for the same Completions, which get them together: one lock for all of one answer.
type gathered struct {
	to       *Completions
	outcomes []outcome.Completion
}

func (g *gathered) add(to *Completions, c outcome.Completion) {
	if to != g.to {
		g.flush()
		g.to = to
	}
	g.outcomes = append(g.outcomes, c)
}

func (g *gathered) flush() {
	if g.to == nil {
		return
	}
	g.to.Add(g.outcomes...)
	clear(g.outcomes) // errors must not be kept alive
	g.to, g.outcomes = nil, g.outcomes[:0]
}
