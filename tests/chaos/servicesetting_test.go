//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A setting says under what conditions the service meets its faults. A seed draws it beside the faults, so
// that bugs which need two of them are met, too.

// setting is drawn for an episode of the service. The zero value is that of other programs.
type setting struct {
	compactions bool // clients compact, and read and watch at old revisions
	snapshots   bool // logs are short, and a member is away until it needs a snapshot
	tls         bool // clients and members use it, and certificates are renewed
}

const (
	withCompactions = "compactions"
	withSnapshots   = "snapshots"
	withTLS         = "tls"
	withNothing     = "nothing"
)

func (s setting) String() string {
	var words []string
	for _, part := range []struct {
		on   bool
		name string
	}{{s.compactions, withCompactions}, {s.snapshots, withSnapshots}, {s.tls, withTLS}} {
		if part.on {
			words = append(words, part.name)
		}
	}
	if len(words) == 0 {
		return withNothing
	}
	return strings.Join(words, ",")
}

// parseSetting reads the value of -with.
func parseSetting(text string) (s setting, err error) {
	for _, word := range strings.Split(text, ",") {
		switch word {
		case withCompactions:
			s.compactions = true
		case withSnapshots:
			s.snapshots = true
		case withTLS:
			s.tls = true
		case withNothing:
		default:
			return s, fmt.Errorf("-with: %q is none of %s, %s, %s, %s", word, withCompactions, withSnapshots, withTLS, withNothing)
		}
	}
	return s, nil
}

// drawSetting draws from a source of its own, so that a seed draws the same faults as without a setting.
func drawSetting(seed uint64) setting {
	rng := rand.New(rand.NewPCG(seed, 6))
	return setting{compactions: rng.IntN(4) > 0, snapshots: rng.IntN(2) == 0, tls: rng.IntN(2) == 0}
}

// settingKinds are the faults that a setting adds. They are not drawn.
var settingKinds = []*kind{
	{name: "away", expects: "it gets a snapshot, and its watches miss nothing", shortest: 2 * second, longest: 4 * second, atMost: 1, can: always, make: makeAway},
	{name: "renewed-certificates", expects: "each member takes its new files while it runs", shortest: 0, longest: second, atMost: 1, can: always, make: makeRenewed},
}

// kindsOfService are all kinds that an episode of the service may make.
func kindsOfService() []*kind { return slices.Concat(serviceKinds, settingKinds) }

// drawService draws an episode of the service. A full disk needs a longer log than one with snapshots. So it
// is not drawn beside them, nor are snapshots if it is the only kind.
func drawService(seed uint64, possible []*kind, hosts int) schedule {
	with := drawSetting(seed)
	if *withWanted != "" {
		with, _ = parseSetting(*withWanted) // rejectFlags has read it
	}
	if with.snapshots {
		rest := slices.DeleteFunc(slices.Clone(possible), func(k *kind) bool { return k.disk })
		if with.snapshots = len(rest) > 0; with.snapshots {
			possible = rest
		}
	}
	s := drawSchedule(seed, possible, hosts)
	s.addSetting(with)
	return s
}

// addSetting gives a schedule its setting, with the faults of that.
func (s *schedule) addSetting(with setting) {
	s.with = with
	rng := rand.New(rand.NewPCG(s.seed, 7))
	add := func(k *kind, latest time.Duration) {
		s.faults = append(s.faults, fault{
			kind: k, at: time.Duration(rng.Int64N(int64(latest))), lasts: k.shortest + time.Duration(rng.Int64N(int64(k.longest-k.shortest)+1)),
			place: rng.IntN(s.hosts), draw: rng.Uint64(),
		})
	}
	if with.snapshots {
		add(settingKinds[0], window/3)
	}
	if with.tls {
		add(settingKinds[1], window/3) // members look for new files every five seconds
	}
	slices.SortStableFunc(s.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// TestSetting: a seed draws the same setting each time, seeds draw all of them, and each adds its faults.
func TestSetting(t *testing.T) {
	drawn := map[setting]int{}
	for seed := range uint64(200) {
		s := drawService(seed, serviceKinds, 0)
		if again := drawService(seed, serviceKinds, 0); again.String() != s.String() {
			t.Fatalf("seed %d drew two schedules:\n%v\n%v", seed, s, again)
		}
		drawn[s.with]++
		has := func(name string) bool {
			return slices.ContainsFunc(s.faults, func(f fault) bool { return f.kind.name == name })
		}
		if has("away") != s.with.snapshots || has("renewed-certificates") != s.with.tls || s.with.snapshots && has("full-disk") {
			t.Errorf("%v", s)
		}
		if read, err := parseSetting(s.with.String()); err != nil || read != s.with {
			t.Errorf("%v is read as %v, %v", s.with, read, err)
		}
	}
	if len(drawn) != 8 {
		t.Errorf("200 seeds drew %d settings, want 8: %v", len(drawn), drawn)
	}
	if _, err := parseSetting("snapshot"); err == nil {
		t.Error("a word that is no setting was taken")
	}
}
