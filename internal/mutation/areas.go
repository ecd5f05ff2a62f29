package mutation

// An area is a part of the library that is drawn from and scored by itself.
type Area struct {
	Name     string
	Packages []string // whose source is mutated, as folders from the root of the module
	Judges   []Judge  // whose tests decide, the packages' own first
}

// A judge is a package of tests.
type Judge struct {
	Package string
	Run     string              // tests whose names match; empty: all
	Skip    string              // tests that are never run: they build programs of the unchanged source, or take too long
	Args    map[string][]string // of one test, by its name; "" is for all others
}

// Areas are the parts that hold the promise of the library. The other judges beside the packages' own tests
// are the simulators and the crash laboratory. Each has so few seeds or images that it ends within the
// budget of a mutant.
var Areas = []Area{
	{
		Name:     "raft",
		Packages: []string{"raft", "raft/quorum", "raft/tracker", "raft/confchange"},
		Judges: []Judge{
			{Package: "raft"}, {Package: "raft/quorum"}, {Package: "raft/tracker"}, {Package: "raft/confchange"},
			{Package: "sim/core", Args: map[string][]string{"": {"-seeds=60"}}},
		},
	},
	{
		Name:     "wal",
		Packages: []string{"wal", "wal/record"},
		Judges: []Judge{
			{Package: "wal/record"},
			{Package: "wal", Args: map[string][]string{"TestCrashLab": {"-crashlab.seed=1", "-crashlab.images=20000"}}},
		},
	},
	{
		Name:     "snapshot",
		Packages: []string{"snapshot"},
		Judges:   []Judge{{Package: "snapshot"}, simulator},
	},
	{
		Name:     "host",
		Packages: append([]string{"host"}, besideHost...),
		Judges: append(judgesOf(besideHost),
			Judge{Package: "host", Args: map[string][]string{"": {"-lies-seed=1"}}}, simulator),
	},
}

// besideHost are the parts of the runtime, and the packages beside it that have tests of their own.
var besideHost = []string{
	"host/internal/appendlane",
	"host/internal/apply",
	"host/internal/budget",
	"host/internal/bulk",
	"host/internal/containment",
	"host/internal/divergence",
	"host/internal/entry",
	"host/internal/examination",
	"host/internal/founding",
	"host/internal/identity",
	"host/internal/leadership",
	"host/internal/members",
	"host/internal/objects",
	"host/internal/outbox",
	"host/internal/peers",
	"host/internal/placement",
	"host/internal/plans",
	"host/internal/proposals",
	"host/internal/pulse",
	"host/internal/reads",
	"host/internal/reports",
	"host/internal/sched",
	"host/internal/snapshots",
	"host/internal/storage",
	"host/internal/workqueue",
	"host/membership",
	"host/pipeline",
	"host/rescue",
	"host/session",
}

// judgesOf returns the packages' own tests.
func judgesOf(packages []string) []Judge {
	judges := make([]Judge, len(packages))
	for i, p := range packages {
		judges[i].Package = p
	}
	return judges
}

// simulator runs whole hosts with few seeds of each scenario.
var simulator = Judge{
	Package: "sim",
	Skip:    "^TestPlantedBugsAreFound$",
	Args: map[string][]string{"": {
		"-seeds=6", "-churns=4", "-takes=2", "-catch-ups=2", "-shortages=3", "-foundings=6", "-withouts=4", "-leases=2", "-objects=3",
		"-transfers=2", "-ailments=1", "-grays=3", "-idles=1", "-repairs=2", "-blackouts=2", "-elections=2",
		"-rescues=3", "-placements=1", "-divergences=1", "-machines=2",
	}},
}

// AreaOf returns the area that mutates a package.
func AreaOf(pkg string) *Area {
	for i := range Areas {
		for _, p := range Areas[i].Packages {
			if p == pkg {
				return &Areas[i]
			}
		}
	}
	return nil
}
