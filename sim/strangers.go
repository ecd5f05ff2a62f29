package sim

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/host"
)

// strangers says what Config.Members names in a run in which members change. The list counts until the log of
// a host has an entry, and may be shorter later. In such runs each host then names only the founders and
// itself. So a host that starts again learns of the members that were added from its log and its snapshots.
// Without addresses not even its record of the hosts that it has met makes them known.
type strangers struct {
	named     bool // by the founders and themselves only
	addressed bool
}

func (w *world) drawStrangers() {
	rng := splitSeed(w.options.Seed, 51)
	w.churn.strangers = strangers{named: rng.IntN(3) == 0, addressed: rng.IntN(2) == 0}
	if w.churn.hasAddrs() {
		return
	}
	for id := range w.config.Members {
		w.config.Members[id] = ""
	}
}

// hasAddrs reports whether the hosts have addresses.
func (c *churn) hasAddrs() bool { return !c.strangers.named || c.strangers.addressed }

// nameFewer shortens the list of a host whose log has entries, and keeps none of them in memory. Applied
// entries are no sign: with GroupConfig.Volatile a host applies before its own log is durable.
func (c *churn) nameFewer(to *host.Config, h *machine) {
	if c == nil || !c.strangers.named {
		return
	}
	to.LogCacheBytes = -1
	if !h.logged {
		return
	}
	to.Members = maps.Clone(to.Members)
	maps.DeleteFunc(to.Members, func(id uint64, _ string) bool {
		return id != h.id && !slices.Contains(c.w.groupConfig.Members, id)
	})
}
