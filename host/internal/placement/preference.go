package placement

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/raft"
)

// Preference is host.Placement: it says which members of a group should lead it. Nil and the zero value mean
// that all are equal. It does not change.
type Preference struct {
	Priorities map[uint64]int // by the ids of members; one that is not named has 1
	Zones      []string       // the best first; a zone that is not named comes after all that are
}

const (
	defaultPriority = 1
	maxPriority     = 100
	maxPriorities   = 1 << 10
	maxZones        = 64
)

// isZero reports whether all members are equal.
func (p *Preference) isZero() bool { return p == nil || len(p.Priorities) == 0 && len(p.Zones) == 0 }

// Clone returns a copy that its caller may keep, or nil for the zero value.
func (p Preference) Clone() *Preference {
	if p.isZero() {
		return nil
	}
	return &Preference{Priorities: maps.Clone(p.Priorities), Zones: slices.Clone(p.Zones)}
}

// Validate reports the first setting that a group would refuse, in a sentence.
func (p Preference) Validate() error {
	if len(p.Priorities) > maxPriorities {
		return fmt.Errorf("millrace: Placement.Priorities names %d members, want at most %d", len(p.Priorities), maxPriorities)
	}
	for _, id := range slices.Sorted(maps.Keys(p.Priorities)) {
		switch priority := p.Priorities[id]; {
		case id == raft.None || raft.IsLocalMsgTarget(id):
			return fmt.Errorf("millrace: Placement.Priorities names host %d, which is a reserved id", id)
		case priority < 0 || priority > maxPriority:
			return fmt.Errorf("millrace: Placement.Priorities gives host %d the priority %d, want 0 to %d", id, priority, maxPriority)
		}
	}
	if len(p.Zones) > maxZones {
		return fmt.Errorf("millrace: Placement.Zones names %d zones, want at most %d", len(p.Zones), maxZones)
	}
	for i, zone := range p.Zones {
		switch why := RejectZone(zone); {
		case zone == "":
			return fmt.Errorf("millrace: Placement.Zones[%d] is empty; leave it out: a zone that is not named comes last", i)
		case why != nil:
			return fmt.Errorf("millrace: Placement.Zones[%d] is %.80q: %w", i, zone, why)
		case slices.Index(p.Zones, zone) < i:
			return fmt.Errorf("millrace: Placement.Zones names %q twice", zone)
		}
	}
	return nil
}

// rank returns how well a member is suited to lead: more is better.
func (p *Preference) rank(id uint64, zone string) int {
	if p == nil {
		return 0
	}
	rank := p.priority(id) * (maxZones + 1)
	if at := slices.Index(p.Zones, zone); at >= 0 && zone != "" {
		rank += maxZones - at
	}
	return rank
}

func (p *Preference) priority(id uint64) int {
	if priority, named := p.Priorities[id]; named {
		return priority
	}
	return defaultPriority
}

// describe says what the rank of a member is made from.
func (p *Preference) describe(id uint64, zone string) string {
	if p == nil {
		return ""
	}
	if len(p.Zones) == 0 {
		return fmt.Sprintf("priority %d", p.priority(id))
	}
	return fmt.Sprintf("priority %d, zone %q", p.priority(id), zone)
}
