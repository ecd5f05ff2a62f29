package simulate

import (
	"slices"
	"strings"
)

// Profile is a mixture of levels. Each level is a profile, too, which has only itself.
type Profile struct {
	Name, About string
	// mixture has each level as often as it is drawn.
	mixture []*Level
}

// mixtures are the profiles of more than one level: a level, and how many of the seeds run in it, for each.
var mixtures = []struct {
	name, about string
	parts       map[string]int
}{
	// A run of whole hosts takes about as long as two or three of the core. Both get about half of the time.
	{"ci", "what CI runs: the core, whole hosts, and some of the longer scenarios", map[string]int{
		coreLevel: 110, "hosts": 50, "churn": 5, "rests": 3, "snapshots": 2, "objects": 3, "founding": 2,
	}},
	{"full", "every level, and each of them often", map[string]int{
		coreLevel: 100, "hosts": 40, "churn": 10, "poison": 5, "upgrades": 4, "rests": 5, "snapshots": 5, "objects": 10, "catch-up": 3, "descriptors": 3, "lowered-memory": 4, "repairs": 5, "blackouts": 2,
		"founding": 10, "rescues": 3, "elections": 5, "exactly-once": 3, "transfers": 4,
	}},
}

// Profiles returns all profiles: the mixtures, then the levels.
func Profiles() []Profile {
	var all []Profile
	for _, m := range mixtures {
		p := Profile{Name: m.name, About: m.about}
		for _, l := range levels {
			p.mixture = append(p.mixture, slices.Repeat([]*Level{l}, m.parts[l.Name])...)
		}
		all = append(all, p)
	}
	for _, l := range levels {
		all = append(all, Profile{Name: l.Name, About: l.About, mixture: []*Level{l}})
	}
	return all
}

// profileNames lists them for a refusal.
func profileNames() string {
	var names []string
	for _, p := range Profiles() {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

func profileNamed(name string) (Profile, bool) {
	all := Profiles()
	i := slices.IndexFunc(all, func(p Profile) bool { return p.Name == name })
	if i < 0 {
		return Profile{}, false
	}
	return all[i], true
}

// Level returns the level in which a seed runs. It depends on the seed and on nothing else. The seeds of a
// shard are a fixed distance apart, so a level for each remainder would give some shards only cheap levels:
// the seed is mixed first.
func (p Profile) Level(seed uint64) *Level {
	return p.mixture[mix(seed)%uint64(len(p.mixture))]
}

// mix returns a number in which each bit of x matters (two rounds of multiply and shift, odd constants).
func mix(x uint64) uint64 {
	for range 2 {
		x = (x ^ x>>32) * 0x9E3779B97F4A7C15
	}
	return x ^ x>>29
}
