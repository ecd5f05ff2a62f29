package bulk

import "slices"

// A receiver asks for what it lacks, a window at a time, and a sender sends what it was asked for and nothing
// else. So the receiver decides what is sent, and knows it after any break: of one connection, of the sender,
// which need not be the same one, or of itself.
//
// Invariant: a block is asked for again only when nothing has arrived for a while. As long as blocks arrive,
// those that are missing are on their way, behind them. A repeat makes the sender forget what it has not sent
// (queue). So only blocks that are still on their way come twice, and of those a break leaves none.

// WindowBlocks is how many blocks a receiver has asked for and not written yet, at most: 1 MiB.
const WindowBlocks = 16

// window decides what to ask for, and when again. It is pure: it knows neither clock nor network.
type window struct {
	waitTicks int64 // ticks of silence before the first repeat; at least 1

	asked  []Place // and not here, in the order in which they were asked for
	held   []Place // here, and not written
	quiet  int64   // ticks since something arrived, or was asked for
	silent int     // repeats since something arrived
}

// maxSilentBackoff bounds by how much repeats become rarer, as a power of two.
const maxSilentBackoff = 4

// more returns what to ask for now, in addition to what was asked for: nothing unless half of the window is
// free. missing is what the receiver lacks on its disk, in order; it may name what was asked for already.
func (w *window) more(missing []Range) []Range {
	free := WindowBlocks - len(w.asked) - len(w.held)
	if free < WindowBlocks/2 {
		return nil
	}
	var fresh []Place
	for _, r := range missing {
		for i := int64(0); i < r.Blocks && len(fresh) < free; i++ {
			at := Place{r.Part, r.Block + i}
			if !slices.Contains(w.asked, at) && !slices.Contains(w.held, at) {
				fresh = append(fresh, at)
			}
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if len(w.asked) == 0 {
		w.quiet = 0
	}
	w.asked = append(w.asked, fresh...)
	return rangesOf(fresh)
}

// needs is how many ranges of missing blocks more can make use of.
func (w *window) needs() int { return WindowBlocks + len(w.asked) + len(w.held) }

// repeat returns all that was asked for and is not here, to ask for it once more.
func (w *window) repeat() []Range {
	w.quiet = 0
	return rangesOf(w.asked)
}

// tick tells that ticks have passed, and reports whether it is time to repeat.
func (w *window) tick(ticks int64) (repeat bool) {
	if len(w.asked) == 0 {
		w.quiet = 0
		return false
	}
	if w.quiet += ticks; w.quiet < w.waitTicks<<min(w.silent, maxSilentBackoff) {
		return false
	}
	w.silent++
	return true
}

// arrived tells that a block is here, and reports whether it was asked for: others must not take memory.
func (w *window) arrived(at Place) (asked bool) {
	i := slices.Index(w.asked, at)
	if i < 0 {
		return false
	}
	w.asked = slices.Delete(w.asked, i, i+1)
	w.held = append(w.held, at)
	w.quiet, w.silent = 0, 0
	return true
}

// wrote tells that a block was written, or refused: then it is missing again.
func (w *window) wrote(at Place) {
	w.held = slices.DeleteFunc(w.held, func(other Place) bool { return other == at })
}

// reset forgets what was asked for: another snapshot, or another part of the work, begins.
func (w *window) reset() { *w = window{waitTicks: w.waitTicks} }

// rangesOf joins blocks that follow each other.
func rangesOf(blocks []Place) (ranges []Range) {
	for _, at := range blocks {
		if n := len(ranges); n > 0 && ranges[n-1].Part == at.Part && ranges[n-1].Block+ranges[n-1].Blocks == at.Block {
			ranges[n-1].Blocks++
			continue
		}
		ranges = append(ranges, Range{at.Part, at.Block, 1})
	}
	return ranges
}
