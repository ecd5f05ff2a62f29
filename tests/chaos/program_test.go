//go:build linux

package chaos

import (
	"math/rand/v2"
)

// program is what the hosts of an episode run: how it is started and asked, what its clients do, and what
// must hold in the end. Hosts, links, disks and faults are the same for all programs.
type program interface {
	prepare() error            // before the first host starts
	founding(h *host) []string // arguments of a founder
	status(h *host) (status, error)
	diskBytes() int64           // of space on the small disk before it is filled
	takesSignals(h *host) bool  // in this life it has come to take SIGTERM
	command(seed uint64) string // that runs the episode again

	load() error // starts clients, and waits until they are at work
	mark()       // before the first fault, and after the last one
	heal() error // waits until all is well again, and stops the clients
	end() error  // ends the hosts, and looks at what they leave on their disks
	judge() error
	stop() // stops clients that still run; it may be called again
}

// kv is examples/kv.
type kv struct{ *episode }

func newKV(e *episode) program { return kv{e} }

func (p kv) prepare() error                       { return nil }
func (p kv) founding(h *host) []string            { return p.flags(h, p.founders, p.net.raft) }
func (p kv) status(h *host) (s status, err error) { return s, h.ask("/status", &s) }
func (p kv) command(seed uint64) string           { return command("TestChaos", seed) }

func (p kv) takesSignals(h *host) bool { return h.words() != "" }

// diskBytes are two segments of the log, and little more.
func (p kv) diskBytes() int64 { return 132 << 20 }

func (p kv) load() error {
	p.episode.load = startLoad(p.episode, rand.New(rand.NewPCG(p.seed, 1)))
	return p.episode.load.waitForMore(200, "before the first fault")
}

func (p kv) mark() { p.episode.load.mark() }

func (p kv) end() error { return p.endAll() }

func (p kv) stop() {
	if p.episode.load != nil {
		p.episode.load.stop()
	}
}
