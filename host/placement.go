package host

import (
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/raft"
)

// Where the leader of a group should be. Any member can lead, but one may be nearer to the clients, or have
// the better machine, and a host that leads most of its groups works while the others wait. Two rules move a
// leadership that works, and nothing else does:
//
//	priorities  the leader hands over to a member that Placement ranks above it (by priority, then by zone)
//	balance     among members of the same rank, a host that leads more groups hands over to one that leads
//	            at least two fewer (Config.Balance)
//
// Both are hints. They never take part in an election: a group without a leader takes the first one that it
// can get. And the leader follows its own configuration: it has what must be known (who is level), so members
// need not agree, and a wrong opinion cannot stop a group. Members that disagree would hand the leadership to
// and fro; so the members of a group count such hand-overs together (host/internal/leadership), and after
// leadership.MaxPlacements of them in an hour the leader stays where it is.
//
// The host chooses for which groups something should change (survey.go), and the turn of the group looks
// whether a member is level, and hands over (handover.go). Decision 0024 has the reasons.

// Placement says which members of a group should lead it. The zero value means that all are equal. It is a
// hint for a leader that works: it takes no part in elections, and a member with priority 0 leads if no other
// can. Give all members the same; if they differ, that of the member that leads decides.
type Placement struct {
	// Priorities are from 0 to 100, by the ids of members. A member that is not named has 1. The leader hands
	// over to a member with a higher priority than its own. 0 means that a member should lead only while no
	// other can. At most 1,024 may be given, also for hosts that are no members yet.
	Priorities map[uint64]int
	// Zones are the zones (Config.Zone) in which the leader should be, the best first; at most 64. They
	// decide among members of the same priority. A zone that is not named comes after all that are.
	Zones []string
}

const (
	defaultPriority   = 1
	maxPriority       = 100
	maxPriorities     = 1 << 10
	maxZones          = 64
	placementTimeouts = 10 // election timeouts for which a leader leads, and a target is heard, before a hand-over
)

// isZero reports whether all members are equal.
func (p *Placement) isZero() bool { return p == nil || len(p.Priorities) == 0 && len(p.Zones) == 0 }

// clone returns a copy that its caller may keep, or nil for the zero value.
func (p Placement) clone() *Placement {
	if p.isZero() {
		return nil
	}
	return &Placement{Priorities: maps.Clone(p.Priorities), Zones: slices.Clone(p.Zones)}
}

// Validate reports the first setting that OpenGroup and SetPlacement would refuse, in a sentence.
func (p Placement) Validate() error {
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
		switch why := leadership.RejectZone(zone); {
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
func (p *Placement) rank(id uint64, zone string) int {
	if p == nil {
		return 0
	}
	rank := p.priority(id) * (maxZones + 1)
	if at := slices.Index(p.Zones, zone); at >= 0 && zone != "" {
		rank += maxZones - at
	}
	return rank
}

func (p *Placement) priority(id uint64) int {
	if priority, named := p.Priorities[id]; named {
		return priority
	}
	return defaultPriority
}

// describe says what the rank of a member is made from.
func (p *Placement) describe(id uint64, zone string) string {
	if p == nil {
		return ""
	}
	if len(p.Zones) == 0 {
		return fmt.Sprintf("priority %d", p.priority(id))
	}
	return fmt.Sprintf("priority %d, zone %q", p.priority(id), zone)
}
